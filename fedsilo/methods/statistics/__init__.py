"""Statistics of features tell what the silos' data are like together, without training a model.

Merged as Chan, Golub, LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979, say.

Counts, missing values, means and variances of each column of a table or channel of images, and histograms with the
job's edges, are those of all silos' values together, exactly. `spec.model` and `spec.training` are not used, and
nothing is scored: `model.safetensors` has the tensors `count`, `missing`, `mean`, `variance` and
`histogram/<feature>`, and `model.json` the same as a table. Silos must permit the kind `feature_statistics`. They
count training examples, without those of `validationFraction`, as a model gets them: bytes of images divided by
255. A silo sends nothing of a feature with fewer values than its `minSamplesPerFeature`, and 0 for such a part of
a histogram.
"""

from fedsilo.methods.statistics.declaration import Statistics

__all__ = ["Statistics"]
