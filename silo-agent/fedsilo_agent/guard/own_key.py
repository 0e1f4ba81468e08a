"""The key with which a guard signs: that of its job, which the silo may have replaced since."""

from __future__ import annotations

import logging
from pathlib import Path

from fedsilo.wire import SigningKey

log = logging.getLogger("fedsilo.guard")


def signing_key(path: Path, public_key: str) -> SigningKey:
    """The silo's key with this public half: the file's, or that of another `.pem` beside it.

    The aggregator knows the silo by the key of the trust bundle until the job ends. Where none is that one, the file's
    is taken, and the aggregator's refusal says which it wants.

    :raises Problem: `malformed` when the file holds no key.
    :raises FileDamaged: when it is missing, no file, or may not be read.
    """
    newest, *others = SigningKey.load_all(path)
    if newest.verify_key.to_text() == public_key:
        return newest
    for key in others:
        if key.verify_key.to_text() == public_key:
            log.info("signs with the key of the job, %s; the silo has another since", key.verify_key.key_id)
            return key
    log.warning("%s has no key of %s, which the job has for this silo; restore it", path.parent, public_key)
    return newest
