"""Opening of an exchange: each silo's task, sealed, its blobs, and the directory of what comes back."""

from __future__ import annotations

from dataclasses import replace

from fedsilo.engine.exchange import OpenExchange
from fedsilo.engine.sealing import TaskSealer
from fedsilo.engine.store import JobStore
from fedsilo.engine.workflow import Workflow
from fedsilo.methods.interface import Exchange
from fedsilo.methods.schedule import exchange_id
from fedsilo.methods.state import State


def open_exchange(
    store: JobStore, workflow: Workflow, sealer: TaskSealer, exchange: Exchange, state: State
) -> OpenExchange:
    """An exchange with nothing come back yet; for the same state it is the same, byte for byte.

    :raises MethodError: when the method's server half fails.
    """
    round = workflow.round(state, exchange)
    assigned = workflow.assign(state, exchange, round.silos)
    broadcast = replace(assigned, state=workflow.stored_state(assigned.state, store.blobs))
    trees, given = broadcast.state.refs(), broadcast.tasks
    tasks = {
        silo: sealer.seal(
            exchange,
            silo,
            given[silo],
            trees,
            workflow.contract(exchange.phase.step, given[silo].settings),
        )
        for silo in round.silos
    }
    handed_out = {tree for task in given.values() for tree in task.trees.values()}
    return OpenExchange(
        job=sealer.identity.uid,
        exchange=exchange,
        directory=store.exchange(exchange_id(exchange), bool(workflow.spec.aggregator.keep_updates)),
        tasks=tasks,
        broadcast=broadcast,
        blobs=frozenset(trees[tree].digest for tree in handed_out),
        round=round,
    )
