"""The silo's policy as it is now: a file that the institution may change while a job runs.

On a cluster it is mounted from a ConfigMap that the silo's controller keeps like the Silo; on one machine it is the
file in the guard's directory. What cannot be read permits nothing.
"""

from __future__ import annotations

from pathlib import Path

from fedsilo.api.loading import load_document
from fedsilo.api.silo import Silo
from fedsilo.errors import FedsiloError, PolicyRefused


class PresentPolicy:
    """A Silo in a file, read again whenever it is asked for.

    :param silo: the silo that it must be of.
    """

    def __init__(self, path: Path, silo: Silo) -> None:
        self._path = path
        self._reference = str(silo)
        self._content = b""
        self._parsed = silo

    def read(self) -> Silo:
        """The Silo as the file says it now.

        :raises PolicyRefused: when the file is missing, is no Silo, or is another silo's.
        """
        remedy = "nothing leaves until it is there as the institution wants it"
        try:
            content = self._path.read_bytes()
            if content != self._content:
                self._parsed, self._content = load_document(self._path, Silo), content
        except (OSError, FedsiloError) as error:
            raise PolicyRefused(
                f"{self._path}: the silo's policy cannot be read ({error}); {remedy}"
            ) from error
        if str(self._parsed) != self._reference:
            raise PolicyRefused(
                f"{self._path}: is of silo {self._parsed}, not of {self._reference}; {remedy}"
            )
        return self._parsed
