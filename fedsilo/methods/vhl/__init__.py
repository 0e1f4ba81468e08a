"""VHL is virtual homogeneity learning, in which all silos also learn from the same labelled noise.

Tang, Zhang, Shi, He, Han, Chu, "Virtual Homogeneity Learning: Defending against Data Heterogeneity in Federated
Learning", ICML 2022. Features of a class's real examples are drawn to those of its virtual ones, which are the same
everywhere. The paper's are images of an untrained StyleGAN, downloaded once; here each silo makes them from the job's
seed, and nothing is downloaded.

Silos' noise is Gaussian around a centre for each class, of images on a coarse grid and enlarged. They learn its
labels by cross-entropy, too.
"""

from fedsilo.methods.vhl.declaration import VHL

__all__ = ["VHL"]
