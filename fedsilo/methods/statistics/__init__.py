"""Statistics of features tell what the silos' data are like together, without training a model.

Merged as Chan, Golub, LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979, say.

Counts, missing values, means and variances of each column of a table or channel of images, and histograms with the
job's edges, are those of all silos' values together, in float64, but for what is suppressed. `spec.model` and
`spec.training` are not used, and nothing is scored: `model.safetensors` has the tensors `count`, `missing`,
`suppressed`, `mean`, `variance` and `histogram/<feature>`, and `model.json` the same as a table. Silos must permit the
kind `feature_statistics`. All examples count, unless the job sets a `validationFraction`; bytes of images are divided
by 255, as for a model.

A silo sends nothing of a feature with fewer values than its `minSamplesPerFeature`, and 0 for such a part of a
histogram. Where all that is left out would be less than that, and so follow from `count`, the smallest of the other
parts is left out with it. How many values are in no figure (`suppressed`) is said by `model.json` (`remarks`), model
card, status and `fedsilo run`. Fewer edges suppress less. So does `spec.aggregation.secure`: the total of a part must
then reach the job's `minSamplesPerClass`, and each silo's own part that of a silo which asks for more. The aggregator
leaves smaller totals out, which it has seen.
"""

from fedsilo.methods.statistics.declaration import Statistics

__all__ = ["Statistics"]
