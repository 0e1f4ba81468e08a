"""The project's container images, built and put into the test cluster without a registry."""

from hack.images.building import build
from hack.images.loading import load, loaded_digests
from hack.images.recipes import IMAGES, TOOLBOX, reference

__all__ = ["IMAGES", "TOOLBOX", "build", "load", "loaded_digests", "reference"]
