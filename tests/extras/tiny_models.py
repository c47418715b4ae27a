"""Folders that hold models of a few thousand random numbers, made and saved by transformers itself."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

WORDS = [
    "the",
    "bridge",
    "opened",
    "in",
    "1931",
    "1932",
    "on",
    "a",
    "sunny",
    "day",
    "it",
    "is",
    "red",
    ".",
    ",",
    "never",
]

CODE = '''
import torch
from transformers import PretrainedConfig, PreTrainedModel


class EvenOddConfig(PretrainedConfig):
    model_type = "even_odd"


class EvenOdd(PreTrainedModel):
    """Supports a statement that has an even number of letters, as HHEM would: by its own ``predict``."""

    config_class = EvenOddConfig

    def __init__(self, config):
        super().__init__(config)
        self.layer = torch.nn.Linear(1, 1)
        self.post_init()

    def forward(self, x):
        return self.layer(x)

    def predict(self, pairs):
        return torch.tensor([0.9 if len(statement) % 2 == 0 else 0.1 for _, statement in pairs])
'''


def classifier(folder: Path, labels: tuple[str, ...] = ("LABEL_0",)) -> str:
    """Save a BERT of two narrow layers that classifies pairs, and its tokenizer; return the folder."""
    folder.mkdir(parents=True)
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))
    torch.manual_seed(7)
    config = BertConfig(
        vocab_size=len(WORDS) + 5,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        initializer_range=0.6,  # large enough to separate pairs from each other
        num_labels=len(labels),
        id2label=dict(enumerate(labels)),
        label2id={label: place for place, label in enumerate(labels)},
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    BertTokenizerFast(str(vocabulary), model_max_length=64).save_pretrained(folder)
    return str(folder)


def with_own_code(folder: Path) -> str:
    """Save a model that brings its code and answers by ``predict``, as HHEM does; return the folder."""
    folder.mkdir(parents=True)
    (folder / "even_odd.py").write_text(CODE)
    auto = {"AutoConfig": "even_odd.EvenOddConfig", "AutoModelForSequenceClassification": "even_odd.EvenOdd"}
    config = {"model_type": "even_odd", "architectures": ["EvenOdd"], "auto_map": auto}
    (folder / "config.json").write_text(json.dumps(config))
    torch.save({"layer.weight": torch.zeros(1, 1), "layer.bias": torch.zeros(1)}, folder / "pytorch_model.bin")
    return str(folder)
