"""A Celery application with a scorer that is created before its worker forks; files are its broker."""

import os
from pathlib import Path

from celery import Celery
from celery.signals import worker_process_shutdown
from tests.live import QUESTION, Grounded, rag

from spanscore import OnlineScorer

folder = Path(os.environ.get("TASKS_FOLDER", "."))
app = Celery("tasks", broker="filesystem://", backend=f"file://{folder / 'results'}")
app.conf.broker_transport_options = {
    "data_folder_in": str(folder / "queue"),
    "data_folder_out": str(folder / "queue"),
    "processed_folder": str(folder / "done"),
    "control_folder": str(folder / "control"),
}
app.conf.worker_hijack_root_logger = False
chain = rag()

if os.environ.get("SCORED") == "1":
    scorer = OnlineScorer([Grounded()], service_name="app")
    scorer.install()

    @worker_process_shutdown.connect
    def _end(**_: object) -> None:
        """Celery's children leave by ``os._exit``: no exit hook runs."""
        scorer.shutdown()


@app.task
def answer() -> str:
    return chain.invoke(QUESTION)


@app.task
def pid() -> int:
    return os.getpid()
