"""Honest requests as fast as they are answered, over sixteen connections: polls, questions about the update, parts of
the model.

By: a silo of the job with its own key.

Must: all are answered, and the other silo's are answered in between.
"""

from __future__ import annotations

import http.client
from concurrent.futures import ThreadPoolExecutor

from attacks.live_aggregator import LiveAggregator

CONNECTIONS = 16
REQUESTS = 20


def attack(target: LiveAggregator) -> None:
    digest, task, ask = target.fetched_task.task.blobs[0].digest, target.task, target.ask
    blob, update = f"{target.base}/blobs/{digest}", f"{target.base}/updates/{task}"

    def send(connection: http.client.HTTPSConnection) -> None:
        for number in range(REQUESTS):
            method, path, headers = (
                ("GET", ask, {}),
                ("HEAD", update, {"Upload-Digest": "0" * 64}),
                ("GET", blob, {"Range": "bytes=0-65535"}),
            )[number % 3]
            fields = {"Authorization": target.silo.proof(method, path), **headers}
            connection.request(method, path, headers=fields)
            connection.getresponse().read()
        connection.close()

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(send, [target.silo.connect() for _ in range(CONNECTIONS)]))
    target.note("answered", CONNECTIONS * REQUESTS)
