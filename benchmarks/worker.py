"""One client, one case, one process: prints what it measured as a line of JSON.

    python -m benchmarks.worker aioproducer pipelined-100b --bootstrap-servers localhost:9092 --topic benchmark

The topic must exist. What cannot be done here comes out as {"unavailable": why}.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.cases import CASES, Workload
from benchmarks.clients import CLIENTS
from benchmarks.job import Job
from benchmarks.measure import Figures
from benchmarks.unavailable import Unavailable

__all__ = ["main"]


def main() -> None:
    """Read the command line, work, and print."""
    arguments = _parser().parse_args()
    client = CLIENTS[arguments.client]
    case = CASES[arguments.case]
    records = client.records(case) if arguments.records is None else arguments.records
    job = Job(
        case,
        arguments.bootstrap_servers,
        arguments.topic,
        records,
        mock=arguments.mock,
        broker_pid=arguments.broker_pid,
        seconds=arguments.seconds,
    )
    print(json.dumps(_work(client.module, job)), flush=True)


def _work(module: str, job: Job) -> Mapping[str, Any]:
    workloads: Mapping[Workload, Callable[[Job], Figures]]
    workloads = importlib.import_module(f"benchmarks.clients.{module}").WORKLOADS
    job.prepare()
    try:
        return {"sent": job.sent, **workloads[job.case.workload](job)}
    except Unavailable as error:
        return {"unavailable": str(error)}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.worker", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("client", choices=CLIENTS)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument(
        "--records", type=int, help="how many are measured (default: the case's, times the client's share)"
    )
    parser.add_argument("--mock", action="store_true", help="the broker is librdkafka's mock cluster")
    parser.add_argument("--broker-pid", type=int, help="the process to pause, for the cases about memory")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long to be idle")
    return parser


if __name__ == "__main__":
    main()
