"""FirstAnswers: what each evaluator version of a judge said of each labelled sample when it was first asked, kept in a file
over restarts.

{"format": 1, "first": {"faithfulness": {"<evaluator version>": {"<hash of the sample>": 0.75, …}}}}

The file quotes nothing. Processes may share it: what stands there wins, and it is replaced as a whole, never half-written.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, Field, ValidationError

from spanscore.core.files import whole_file
from spanscore.core.log import log_once
from spanscore.errors import ConfigurationError

__all__ = ["FirstAnswers"]

_Answers: TypeAlias = dict[str, dict[str, dict[str, Annotated[float, Field(ge=0, le=1)]]]]


class _BaselineFile(BaseModel):
    format: Literal[1] = 1
    first: _Answers


class FirstAnswers:
    """The first quality by metric, evaluator version and sample. Blocks for its file.

    Raises:
        ConfigurationError: there is such a file, and it is none of these.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._first: _Answers = _read(path)

    def of(self, metric: str, evaluator_version: str) -> Mapping[str, float]:
        """Return sample → quality of one evaluator version; empty before its first run."""
        return self._first.get(metric, {}).get(evaluator_version, {})

    def keep(self, metric: str, evaluator_version: str, answers: Mapping[str, float]) -> None:
        """Keep those answers that are the first to their samples; the others are left as they are. Never raises.

        Where the file cannot be read or written that is logged, and they are kept in memory.
        """
        try:
            held = _read(self._path)
            for name, own in held.items():  # another process may have been first
                for one, kept in own.items():
                    self._add(name, one, kept)
        except ConfigurationError as error:
            log_once(f"judge check {self._path}", f"{error}: the judge is compared with the first run of this process")
            self._add(metric, evaluator_version, answers)
            return
        self._add(metric, evaluator_version, answers)
        if held != self._first:  # also where another process wrote over what was kept before
            self._write()

    def _add(self, metric: str, evaluator_version: str, answers: Mapping[str, float]) -> None:
        if not answers:
            return
        kept = self._first.setdefault(metric, {}).setdefault(evaluator_version, {})
        kept |= {sample: quality for sample, quality in answers.items() if sample not in kept}

    def _write(self) -> None:
        try:
            with whole_file(self._path) as file:
                file.write(_BaselineFile(first=self._first).model_dump_json(indent=1))
        except OSError as error:
            log_once(
                f"judge check {self._path}",
                f"the judge check's baseline {self._path} cannot be written ({error.strerror}): a judge that changes while no "
                "process runs will not be seen. Let judge_check.baseline be a file that may be written and outlives "
                "the process",
            )


def _read(path: Path) -> _Answers:
    try:
        return _BaselineFile.model_validate_json(path.read_bytes()).first
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigurationError(f"the judge check's baseline {path} cannot be read: {error.strerror}") from None
    except ValidationError:
        raise ConfigurationError(
            f"{path} is no baseline of a judge check: name another file in judge_check.baseline, or remove it to begin anew"
        ) from None
