"""Weights of a torchvision ResNet as a job's initial weights; prints their digest.

    python from_torchvision.py resnet18.pth 10 resnet18.safetensors

The job's model is then `torchvision:resnet18`. Its classifier is new, since the job has classes of its own.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file


def main(weights: str, classes: str, output: str) -> None:
    """Convert the state dict of one file into another."""
    state = torch.load(weights, map_location="cpu", weights_only=True)
    width = state["fc.weight"].shape[1]
    torch.manual_seed(0)
    classifier = torch.nn.Linear(width, int(classes))
    tensors = {f"encoder.{name}": tensor for name, tensor in state.items() if not name.startswith("fc.")}
    tensors |= {f"classifier.{name}": tensor for name, tensor in classifier.state_dict().items()}
    Path(output).parent.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, output)
    print(hashlib.sha256(Path(output).read_bytes()).hexdigest())


if __name__ == "__main__":
    main(*sys.argv[1:])
