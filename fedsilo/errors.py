"""Everything that can go wrong, as one tree.

Each error names the object, the field, the value and the remedy in its message. Each class carries the
process exit code and the condition reason under which a job that fails of it is reported, locally and on a
cluster alike.

    FedsiloError                      exit   reason
    ├── ManifestInvalid                  2   ManifestInvalid       what a person wrote cannot be run
    │   └── ImportNotAllowed             2   ImportNotAllowed      a document names code that nobody has allowed to run
    ├── DataInvalid                      3   DataInvalid           a silo's dataset cannot be read or is wrong
    ├── JobFailed                        4   (one of the below)    the federation ran and did not finish
    │   ├── QuorumLost                   4   QuorumLost            too few silos can still answer
    │   ├── DeadlineExceeded             4   DeadlineExceeded      too few silos answered in time
    │   └── SiloFailed                   4   SiloFailed            a silo reported an error that no retry mends
    ├── PolicyRefused                    5   PolicyRefused         a silo's policy or contract forbids the task
    ├── WorkdirConflict                  6   WorkdirConflict       the directory belongs to another job or run
    │   └── FileDamaged                  6   FileDamaged           a file of fedsilo is torn, changed or missing
    │       └── UnfitFile                6   FileDamaged           something else has its name, or it is too large
    ├── MethodError                      7   MethodError           a method or model does not keep its declaration
    ├── Problem                          8   (its code)            the peer refused or broke the protocol
    ├── ProvenanceInvalid                9   ProvenanceInvalid     what a model was made from does not hold
    └── StorageFailed                    1   StorageFailed         a disk does not take or give what it should

Exit 0 is success, 1 a defect of fedsilo itself or a disk's failure, 130 and 143 an interruption by SIGINT and SIGTERM.
An exit code of 2, 3, 5, 6 or 7 says that trying again without a change cannot help.
"""

from __future__ import annotations

import errno
import re

from typing_extensions import override

STORAGE_ERRNOS = frozenset(
    {errno.EIO, errno.EROFS, errno.ESTALE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENXIO}
)
"""What the system says of a disk, and never of fedsilo."""


_QUOTE, _END = "\ufdd0", "\ufdd1"
"""What encloses a value in the text of an error: two of the characters that Unicode keeps for a program's own use."""

SEE_LOG = "(see the silo's log)"
"""What is told in place of a value."""


def quoted_value(value: object) -> str:
    """A value that is of the data, or a text that may quote one, for the text of an error.

    The error says it where it is logged, beside the data, and leaves it out of what it tells others.
    """
    return f"{_QUOTE}{str(value).replace(_QUOTE, '').replace(_END, '')}{_END}"


class FedsiloError(Exception):
    """Root of all errors that fedsilo raises on purpose; its text is meant for a person."""

    exit_code = 1
    reason = "InternalError"

    @override
    def __str__(self) -> str:
        """The whole text, with all values."""
        return self.marked_text.replace(_QUOTE, "").replace(_END, "")

    @property
    def marked_text(self) -> str:
        """The text in which `quoted` values can be told apart, for an error that repeats it."""
        return super().__str__()

    @property
    def redacted_text(self) -> str:
        """The text without the values that it quotes: what may be told of it where the data are not."""
        return re.sub(f"{_QUOTE}.*?{_END}", SEE_LOG, self.marked_text, flags=re.DOTALL)


class ManifestInvalid(FedsiloError):
    """A manifest, an option or an argument that cannot be run as it is written."""

    exit_code = 2
    reason = "ManifestInvalid"


class ImportNotAllowed(ManifestInvalid):
    """A document that a person looks at names code, and the person has not allowed it to run."""

    reason = "ImportNotAllowed"


class DataInvalid(FedsiloError):
    """A dataset that cannot be read, or whose items are not what the job says.

    Each argument is the text of one fault.
    """

    @property
    @override
    def marked_text(self) -> str:
        return ". ".join(map(str, self.args))

    @property
    def faults(self) -> tuple[DataInvalid, ...]:
        """Each fault as an error of its own."""
        return tuple(DataInvalid(text) for text in self.args)

    exit_code = 3
    reason = "DataInvalid"


class JobFailed(FedsiloError):
    """The federation started and ended without a model."""

    exit_code = 4
    reason = "JobFailed"


class QuorumLost(JobFailed):
    """Fewer silos than `participation.minSilos` can still answer in this round."""

    reason = "QuorumLost"


class DeadlineExceeded(JobFailed):
    """At `participation.roundDeadline` fewer than `minSilos` had answered."""

    reason = "DeadlineExceeded"


class SiloFailed(JobFailed):
    """A silo reported an error that trying again cannot mend."""

    reason = "SiloFailed"


class PolicyRefused(FedsiloError):
    """A silo's policy, or the contract that its guard derived, forbids what was asked."""

    exit_code = 5
    reason = "PolicyRefused"


class WorkdirConflict(FedsiloError):
    """The working directory belongs to another job, or another run holds it."""

    exit_code = 6
    reason = "WorkdirConflict"


class FileDamaged(WorkdirConflict):
    """A file that fedsilo wrote is torn, changed or missing; its message names file, place and remedy."""

    reason = "FileDamaged"


class UnfitFile(FileDamaged, OSError):
    """A name of something else than a plain file, or of a file that is too large to be read; `strerror` says which.

    It is an error of the system's kind too, so that whoever handles a file that cannot be read handles this one.
    """

    @property
    @override
    def marked_text(self) -> str:
        """File, what is wrong with it, and what to do."""
        return f"{self.filename}: {self.strerror}; put a plain file of fedsilo's there"


class MethodError(FedsiloError):
    """A method or model that does not keep its own declaration, or whose numbers are no longer finite."""

    exit_code = 7
    reason = "MethodError"


class StorageFailed(FedsiloError):
    """A disk that does not take or give what it should: nothing half-written is used, and trying again may help."""

    reason = "StorageFailed"

    @classmethod
    def of(cls, error: BaseException) -> StorageFailed | None:
        """The failure that an error of the system is; None where it is anything else."""
        if not isinstance(error, OSError) or error.errno not in STORAGE_ERRNOS:
            return None
        return cls(
            f"{error.filename or 'a file'}: {error.strerror}; look for faults of the disk, or of the volume, in the "
            "system's log"
        )


class Problem(FedsiloError):
    """A refusal in the protocol, as RFC 9457 problem details.

    :param code: stable kebab-case name, one of `fedsilo.wire.problems.STATUS`.
    :param detail: what was found and what was expected.
    """

    exit_code = 8
    reason = "ProtocolProblem"

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


class ProvenanceInvalid(FedsiloError):
    """A signature, digest or link of a model's provenance that does not hold, or a fold that gives other bytes."""

    exit_code = 9
    reason = "ProvenanceInvalid"
