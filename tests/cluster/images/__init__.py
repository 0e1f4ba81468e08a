"""The project's container images, built and put into the test cluster without a registry."""

from tests.cluster.images.building import build
from tests.cluster.images.loading import load
from tests.cluster.images.recipes import IMAGES, TOOLBOX, reference

__all__ = ["IMAGES", "TOOLBOX", "build", "load", "reference"]
