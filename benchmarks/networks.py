"""The two networks of the simulation's benchmarks, of PyTorch alone."""

from __future__ import annotations

from torch import Tensor, nn
from typing_extensions import override


class LeNet5(nn.Module):
    """LeNet-5 of LeCun et al. (1998), with ReLU and max-pooling: 61,706 parameters for 28x28 and ten classes."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(channels, 6, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(400, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
        )
        self.classifier = nn.Linear(84, classes)

    @override
    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.encoder(x))
        return logits


def lenet5(input_shape: tuple[int, ...], classes: int) -> LeNet5:
    """The network as a job may name it."""
    return LeNet5(input_shape[0], classes)


class Perceptron(nn.Module):
    """One hidden layer of 32: 1,002 parameters for 20 numbers and ten classes."""

    def __init__(self, numbers: int, classes: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(numbers, 32), nn.ReLU())
        self.classifier = nn.Linear(32, classes)

    @override
    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.encoder(x))
        return logits


def perceptron(input_shape: tuple[int, ...], classes: int) -> Perceptron:
    """Perceptron for inputs of one dimension."""
    return Perceptron(input_shape[0], classes)
