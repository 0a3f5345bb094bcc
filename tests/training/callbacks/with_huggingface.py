"""Four epochs with Hugging Face's trainer; the argument is when it saves by itself."""

import sys
from typing import Any

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from jobyard.sdk.huggingface import YardCallback, last_complete_checkpoint
from tests.training.callbacks.asking import ask_in_second_epoch


class Model(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x: Any = None, labels: Any = None) -> dict[str, Any]:
        out = self.layer(x)
        return {"loss": ((out - labels) ** 2).mean(), "logits": out}


class Ask(TrainerCallback):  # type: ignore[misc]
    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        ask_in_second_epoch(int(state.epoch or 0))


torch.manual_seed(0)
yard = YardCallback()
args = TrainingArguments(
    disable_tqdm=True,
    num_train_epochs=4,
    output_dir=str(yard.job.checkpoint_dir),
    per_device_train_batch_size=8,
    report_to=[],
    save_steps=3,
    save_strategy=sys.argv[1],
    use_cpu=True,
)
data: Any = [{"x": torch.randn(4), "labels": torch.ones(1)} for _ in range(40)]
model = Model()
trainer = Trainer(model=model, args=args, train_dataset=data, callbacks=[yard, Ask()])
trainer.train(resume_from_checkpoint=last_complete_checkpoint(str(yard.job.checkpoint_dir)))
print("result", trainer.state.global_step, float(model.layer.weight.sum()).hex())
