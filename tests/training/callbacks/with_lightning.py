"""Four epochs with Lightning; `unsaved` as an argument: nobody saves but the yard's callback."""

import sys
from typing import Any

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

from jobyard.sdk.lightning import YardCallback
from tests.training.callbacks.asking import ask_in_second_epoch

torch.manual_seed(0)


class Model(lightning.LightningModule):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch: Any, index: int) -> Any:
        ask_in_second_epoch(self.current_epoch)
        loss = ((self.layer(batch[0]) - 1) ** 2).mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters())


is_saved = "unsaved" not in sys.argv
yard = YardCallback()
trainer = lightning.Trainer(
    accelerator="cpu",
    callbacks=[yard],
    default_root_dir=yard.job.checkpoint_dir,
    enable_checkpointing=is_saved,
    enable_model_summary=False,
    enable_progress_bar=False,
    logger=is_saved,
    max_epochs=4,
)
model = Model()
trainer.fit(model, DataLoader(TensorDataset(torch.randn(40, 4)), batch_size=8), ckpt_path=yard.ckpt_path)
print("result", trainer.global_step, float(model.layer.weight.sum()).hex())
