"""How gradients of single examples are had of each kind of layer."""

from __future__ import annotations

from torch import nn

from fedsilo.learning.layer_gradients import EmbeddingGradients, MatrixGradients, ProductGradients
from fedsilo.learning.row_gradients import NormGradients

LayerKind = type[ProductGradients] | type[NormGradients]


def gradients_class(layer: nn.Module) -> LayerKind | None:
    """How gradients of a layer are had; None where they are not to be had from what it took and what came back.

    In half precision a sum is rounded by more than one example may add.
    """
    parameters = dict(layer.named_parameters(recurse=False))
    if not parameters.keys() <= {"weight", "bias"} or any(each.itemsize < 4 for each in parameters.values()):
        return None
    if isinstance(layer, nn.Embedding) and (layer.scale_grad_by_freq or layer.max_norm is not None):
        return None
    if isinstance(layer, nn.modules.batchnorm._BatchNorm) and (layer.training or layer.running_mean is None):
        return None
    if isinstance(layer, nn.modules.instancenorm._InstanceNorm) and layer.track_running_stats:
        return None
    return next((found for kind, found in _CLASSES.items() if _computes_as(layer, kind)), None)


def _computes_as(layer: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether the layer is of that class, or of a subclass that leaves its forward pass alone."""
    names = ("forward", "_conv_forward")
    return isinstance(layer, kind) and all(
        getattr(type(layer), name, None) is getattr(kind, name, None) for name in names
    )


_CLASSES: dict[type[nn.Module], LayerKind] = {
    **dict.fromkeys((nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d), MatrixGradients),
    nn.Embedding: EmbeddingGradients,
    **dict.fromkeys((nn.LayerNorm, nn.RMSNorm, nn.GroupNorm), NormGradients),
    **dict.fromkeys((nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d), NormGradients),
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d), NormGradients),
}
