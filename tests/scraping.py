"""A scrape as Prometheus makes it: text over HTTP, parsed by its own client."""

from __future__ import annotations

import urllib.request

from prometheus_client.parser import text_string_to_metric_families

Labels = dict[str, str]


class Scrape:
    """What a process said at one moment."""

    def __init__(self, text: str) -> None:
        families = list(text_string_to_metric_families(text))
        self.declared = {
            (f"{family.name}_total" if family.type == "counter" else family.name, family.type)
            for family in families
        }
        """Name and type of every metric, with or without values."""
        self.samples = [sample for family in families for sample in family.samples]

    def values(self, name: str, /, **labels: str) -> dict[tuple[str, ...], float]:
        """Values of the series with these labels, by those of the others, in the order of their names."""
        return {
            tuple(
                sample.labels[label] for label in sorted(sample.labels) if label not in labels
            ): sample.value
            for sample in self.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        }

    def value(self, name: str, /, **labels: str) -> float:
        """The value of the only series with these labels."""
        (found,) = self.values(name, **labels).values()
        return found

    @property
    def labels(self) -> set[tuple[str, str]]:
        """Every label with each of its values."""
        return {pair for sample in self.samples for pair in sample.labels.items()}


def scrape(port: int) -> Scrape:
    """Ask a process on this machine."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return Scrape(answer.read().decode())
