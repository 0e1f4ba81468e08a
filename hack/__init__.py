"""Tools that develop and test fedsilo and are no part of it: Kubernetes on one machine, images without a registry.

`cluster` is a one-node Kubernetes, `binaries` its programs, `install` the operator installed there, `images` are
images without a registry. `crds` and its neighbours generate definitions from the models, `reference` and
`method_pages` pages.
"""
