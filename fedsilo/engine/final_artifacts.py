"""What a job's end leaves beside its directory's own files: the model, its provenance and its card."""

from __future__ import annotations

from collections.abc import Mapping

from fedsilo.data.schema import Schema
from fedsilo.engine.model_card import write_model_card
from fedsilo.engine.provenance import FIRST_DIGEST, write_provenance
from fedsilo.engine.result import Result, write_result
from fedsilo.engine.sealing import TaskSealer
from fedsilo.engine.store import JobProgress, JobStore
from fedsilo.engine.workflow import Workflow
from fedsilo.wire import ChainEnd


def write_final_artifacts(
    store: JobStore,
    workflow: Workflow,
    sealer: TaskSealer,
    progress: JobProgress,
    schemata: Mapping[str, Schema],
) -> Result:
    """Write all of it; doing so again gives the same bytes."""
    directory, identity, chain = store.directory, sealer.identity, store.provenance
    released = workflow.model.final_model(progress.state, store.history())
    result = write_result(directory, released, workflow.spec, identity)
    end = ChainEnd(identity.uid, chain.number, bytes.fromhex(chain.last or FIRST_DIGEST))
    write_provenance(directory, result.sha256, chain.path, end, sealer.key)
    write_model_card(directory, workflow.method, store.history(), schemata)
    return result
