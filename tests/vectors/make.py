"""Make the test vectors of the wire format: `python -m tests.vectors.make`.

Everything comes from three key pairs of RFC 8032, section 7.1, so it always makes the same bytes. Other
implementations read `vectors.json` and the files it names; they need nothing from here.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from blake3 import blake3 as hashed

from fedsilo.canonical import canonical_json
from fedsilo.wire import (
    DECISION,
    LEAVING,
    OFFER,
    ROTATION,
    SUCCESSION,
    ExpectedBlock,
    seal_chain,
    sign_request,
    sign_statement,
    task_digest,
    write_tensors,
)
from tests.updates import digest_of
from tests.vectors import digests, encoded, segmented, sums
from tests.vectors.example import (
    AGGREGATOR,
    ARRAYS,
    BLOCKS,
    CHAIN_END,
    CONTENTS,
    CONTRACT,
    DECISION_FIELDS,
    HEADER,
    KEYS,
    LEAVING_FIELDS,
    NEXT_KEY,
    NOW,
    OFFER_FIELDS,
    REQUEST,
    SEEDS,
    SENDER,
    SILO,
    SUCCESSION_FIELDS,
    TASK_BYTES,
    TASK_MESSAGE,
    write_example,
)
from tests.vectors.refused import refused_tasks, refused_updates

OF_NO_DIGEST = ("at_most", "combine")
"""What a block has beside what its digest is of."""


def update(path: Path, count: int) -> bytes:
    """A whole update with the first `count` blocks, as the package writes it."""
    write_example(path, CONTRACT, list(zip(BLOCKS, ARRAYS, strict=True))[:count], HEADER.metrics)
    return path.read_bytes()


def requests() -> list[dict[str, Any]]:
    """Proofs with the request that each came with, and the sender or the code."""
    proof = sign_request(SILO, sender=SENDER, now=NOW, **REQUEST)
    bound = sign_request(SILO, sender=SENDER, now=NOW, **REQUEST | {"method": "POST", "body": b"{}"})
    cases: list[tuple[str, dict[str, Any], str]] = [
        (proof, {}, SENDER),
        (bound, {"method": "POST", "body": b"{}"}, SENDER),
        (proof, {"now": NOW + 91}, "proof-expired"),
        (proof, {"now": NOW - 31}, "proof-expired"),
        (proof, {"path": "/v1/jobs/digits/task?wait=31"}, "signature-invalid"),
        (proof, {"method": "HEAD"}, "signature-invalid"),
        (bound, {"method": "POST", "body": b"[]"}, "signature-invalid"),
        (proof, {"job": "another"}, "wrong-job"),
        (proof + "=", {}, "malformed"),
        ("Bearer " + proof[8:], {}, "malformed"),
    ]
    found = []
    for value, changes, outcome in cases:
        request = {"now": NOW} | REQUEST | changes
        request["body"] = None if request["body"] is None else request["body"].decode()
        found.append(
            {"authorization": value, "request": request, "sender" if "/" in outcome else "code": outcome}
        )
    return found


def statements() -> list[dict[str, Any]]:
    """Statements of a silo with the bytes that are signed; and others with the code of their refusal."""
    decision = sign_statement(DECISION, DECISION_FIELDS, SILO)
    offer = sign_statement(OFFER, OFFER_FIELDS, SILO)
    reordered = dict(reversed(decision.items())) | {"note": None}
    succession = sign_statement(SUCCESSION, SUCCESSION_FIELDS, NEXT_KEY)
    rotation = sign_statement(ROTATION, {"succession": succession}, SILO)
    leaving = sign_statement(LEAVING, LEAVING_FIELDS, SILO)
    admitted = decision | {"decision": "Admitted", "objections": []}
    cases: list[tuple[str, dict[str, Any], str, str]] = [
        (DECISION, decision, "", "a silo refuses a proposal"),
        (OFFER, offer, "", "what a silo offers"),
        (DECISION, reordered, "", "another order of keys, and a null: the same statement"),
        (DECISION, admitted, "signature-invalid", "a refusal made an admission"),
        (DECISION, decision | {"note": "x"}, "signature-invalid", "a field that was not signed"),
        (DECISION, offer, "signature-invalid", "signed in the domain of offers"),
        (
            DECISION,
            sign_statement(DECISION, DECISION_FIELDS, KEYS["aggregator"]),
            "signature-invalid",
            "by another",
        ),
        (
            DECISION,
            decision | {"signature": decision["signature"][:-2]},
            "malformed",
            "no padding of the base64",
        ),
        (DECISION, decision | {"share": 0.5}, "malformed", "a fraction"),
        (SUCCESSION, succession, "", "the new key takes over"),
        (ROTATION, rotation, "", "the old key announces the new one"),
        (LEAVING, leaving, "", "a silo leaves"),
        (
            ROTATION,
            sign_statement(ROTATION, {"succession": succession}, NEXT_KEY),
            "signature-invalid",
            "the new key announces itself",
        ),
        (ROTATION, succession, "signature-invalid", "what the new key signed, in place of the announcement"),
        (
            ROTATION,
            rotation | {"succession": succession | {"publicKey": KEYS["aggregator"].verify_key.to_text()}},
            "signature-invalid",
            "another key is announced",
        ),
    ]
    found = []
    for domain, statement, code, means in cases:
        unsigned = {name: value for name, value in statement.items() if name != "signature"}
        outcome = {"code": code} if code else {"message": canonical_json(unsigned).decode()}
        by = "next" if domain == SUCCESSION else "silo"
        found.append({"domain": domain, "by": by, "statement": statement, "means": means} | outcome)
    return found


def _block_entries(blocks: Iterable[ExpectedBlock]) -> list[dict[str, Any]]:
    """Blocks of a contract, none of which may be shorter."""
    return [
        {name: value for name, value in dataclasses.asdict(block).items() if name not in OF_NO_DIGEST}
        for block in blocks
    ]


def segments(directory: Path) -> dict[str, Any]:
    """What is said of tensors in segments, with a limit that is small enough for files."""
    good = directory / "segmented-update.bin"
    segmented.write(good)
    refused = []
    for name, code, data, reason in segmented.refused_cases(good):
        file = f"segmented-refused-{name}.bin"
        (directory / file).write_bytes(data)
        refused.append({"file": file, "code": code, "reason": reason})
    tensors = zip(segmented.BLOCKS, segmented.ARRAYS, strict=True)
    return {
        "segmentBytes": segmented.SEGMENT_BYTES,
        "contract": {
            "blocks": _block_entries(segmented.BLOCKS),
            "metrics": [],
            "digest": segmented.CONTRACT.digest(),
        },
        "update": {
            "file": good.name,
            "digest": digest_of(good.read_bytes()),
            "blocks": {block.name: array.tobytes().hex() for block, array in tensors},
        },
        "refused": refused,
    }


def blake3(directory: Path) -> dict[str, Any]:
    """What is said of a job whose digests are BLAKE3: the blocks and metrics are those of the contract above."""
    good = directory / "blake3-update.bin"
    digests.write(good)
    (directory / "blake3-task.bin").write_bytes(digests.TASK_BYTES)
    refused = []
    for name, code, data, reason in digests.refused_cases(good):
        file = f"blake3-refused-{name}.bin"
        (directory / file).write_bytes(data)
        refused.append({"file": file, "code": code, "reason": reason})
    message = digests.TASK_MESSAGE
    return {
        "contract": {"digest": digests.CONTRACT.digest()},
        "task": {
            "file": "blake3-task.bin",
            "digest": task_digest(digests.TASK_BYTES).hex(),
            "means": dataclasses.asdict(message)
            | {"spec_digest": message.spec_digest.hex(), "contract": message.contract.hex()},
        },
        "update": {
            "file": good.name,
            "digest": digest_of(good.read_bytes()),
            "blocks": {
                block.name: {"bytes": content.hex(), "digest": hashed(content).hexdigest()}
                for block, content in zip(BLOCKS, CONTENTS, strict=True)
            },
        },
        "refused": refused,
    }


def make(directory: Path) -> None:
    """Write `vectors.json` and the files it names."""
    files = {
        f"update-{count}-blocks.bin": update(directory / f"update-{count}-blocks.bin", count)
        for count in (2, 4)
    }
    good = files["update-4-blocks.bin"]
    (directory / "task.bin").write_bytes(TASK_BYTES)
    (directory / "provenance-seal.bin").write_bytes(seal_chain(CHAIN_END, AGGREGATOR))
    tensors = {block.name: array for block, array in zip(BLOCKS[::-1], ARRAYS[::-1], strict=True)}
    blob = write_tensors(tensors, directory / "model.safetensors")
    refused = []
    for kind, cases in (("update", refused_updates(good)), ("task", refused_tasks())):
        for name, code, data, why in cases:
            file = f"refused-{kind}-{name}.bin"
            (directory / file).write_bytes(data)
            refused.append({"file": file, "as": kind, "code": code, "why": why})
    document = {
        "keys": {
            name: {"seed": SEEDS[name], "public": key.verify_key.to_text(), "keyId": key.verify_key.key_id}
            for name, key in KEYS.items()
        },
        "contract": {
            "blocks": _block_entries(BLOCKS),
            "metrics": list(CONTRACT.metrics),
            "digest": CONTRACT.digest(),
        },
        "task": {
            "file": "task.bin",
            "digest": task_digest(TASK_BYTES).hex(),
            "means": dataclasses.asdict(TASK_MESSAGE)
            | {"spec_digest": TASK_MESSAGE.spec_digest.hex(), "contract": TASK_MESSAGE.contract.hex()},
        },
        "provenanceSeal": {
            "file": "provenance-seal.bin",
            "means": dataclasses.asdict(CHAIN_END) | {"chain": CHAIN_END.chain.hex()},
        },
        "updates": [
            {
                "file": file,
                "digest": digest_of(data),
                "sender": SENDER,
                "samples": HEADER.samples,
                "metrics": HEADER.metrics,
                "blocks": {
                    b.name: c.hex() for b, c in list(zip(BLOCKS, CONTENTS, strict=True))[: int(file[7])]
                },
            }
            for file, data in files.items()
        ],
        "blob": {
            "file": "model.safetensors",
            "digest": blob.digest,
            "tensors": {name: array.tobytes().hex() for name, array in tensors.items()},
        },
        "requests": requests(),
        "statements": statements(),
        "refused": refused,
        "segments": segments(directory),
        "encodings": {
            "shape": list(encoded.VALUES.shape),
            "values": encoded.VALUES.tobytes().hex(),
            "sent": encoded.encodings(),
        },
        "blake3": blake3(directory),
        "secureSum": sums.document(),
    }
    (directory / "vectors.json").write_text(json.dumps(document, indent=1) + "\n")


def main() -> None:
    """Replace the committed vectors."""
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory(dir=here) as made:
        make(Path(made))
        for old in (*here.glob("*.bin"), *here.glob("*.safetensors")):
            old.unlink()
        for path in Path(made).iterdir():
            path.replace(here / path.name)


if __name__ == "__main__":
    main()
