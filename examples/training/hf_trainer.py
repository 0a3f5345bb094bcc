"""A Hugging Face Trainer that knows nothing of a yard: it saves each epoch, and resumes from what it finds saved.

Inside a yard it reports progress by itself: transformers speaks Kubeflow's protocol when it finds its variables set.
It is stopped by SIGTERM, and loses what it has done since its last save. A machine can also lose its power while a
checkpoint is written: only one that is complete is resumed from.
"""

import argparse
import os
from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class MadeUpSentences(Dataset):
    def __init__(self, count, length=16, words=100):
        numbers = torch.Generator().manual_seed(0)
        self.ids = torch.randint(words, (count, length), generator=numbers)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        ids = self.ids[index]
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids[0] % 2}


def last_complete_checkpoint(directory):
    """The Trainer writes `trainer_state.json` last: without it a checkpoint is half of one."""
    complete = [found.parent for found in Path(directory).glob("checkpoint-*/trainer_state.json")]
    return max(complete, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", default=os.environ.get("YARD_CHECKPOINT_DIR", "hf-trainer"), help="for checkpoints")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--samples", type=int, default=256)
    options = parser.parse_args()
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=100,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            num_labels=2,
        )
    )
    arguments = TrainingArguments(
        output_dir=options.output,
        num_train_epochs=options.epochs,
        per_device_train_batch_size=8,
        save_strategy="epoch",
        save_total_limit=2,
        logging_strategy="epoch",
        disable_tqdm=True,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=MadeUpSentences(options.samples))
    last = last_complete_checkpoint(options.output)
    print(f"begins with {last or 'a new model'}", flush=True)
    done = trainer.train(resume_from_checkpoint=last and str(last))
    print(f"ended after step {done.global_step} with loss {done.training_loss:.4f}")
