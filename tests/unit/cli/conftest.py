"""Fixtures of the commands' tests."""

from tests.unit.cli.fake_kubectl import kubectl as kubectl
