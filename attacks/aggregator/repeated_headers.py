"""Two proofs, two lengths, two offsets and two digests in one request, one honest and one not.

By: a silo of the job with its own key.

Must: refused as `malformed`, or the upload does not follow; nothing is accepted.
"""

from __future__ import annotations

from attacks.live_aggregator import LiveAggregator


def attack(target: LiveAggregator) -> None:
    path = f"{target.base}/updates/{target.task}"
    upload = ["Content-Length: 1", "Upload-Offset: 0", "Upload-Length: 100", f"Upload-Digest: {'0' * 64}"]
    proof = f"Authorization: {target.silo.proof('PATCH', path)}"
    for second in (
        "Authorization: Fedsilo A",
        "Content-Length: 2",
        "Upload-Offset: 50",
        "Upload-Length: 1000000",
        f"Upload-Digest: {'1' * 64}",
    ):
        for lines in ([proof, *upload, second], [second, proof, *upload]):
            head = [f"PATCH {path} HTTP/1.1", "Host: a", *lines, "", ""]
            target.expect("malformed", target.exchange("\r\n".join(head).encode() + b"x"))
    target.expect_nothing_kept()
