"""A run's settings in the form that TensorBoard's HPARAMS tab reads.

They are records in the run's own event file, without a value of their own.  TensorBoard takes the list of settings and
metrics from whichever run it meets first, so every run writes the same list: all that any method reads.  Runs that
differ in their seed alone are one session group, whose metrics TensorBoard averages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tensorboardX.proto import api_pb2, plugin_hparams_pb2, summary_pb2

import args
from settings import resolving, run_identity, sections

API: Any = api_pb2  # their names exist at run time only
PLUGIN: Any = plugin_hparams_pb2
SUMMARY: Any = summary_pb2

METRICS = ("Vacc", "Vloss", "est_var", "comm/bits_per_coordinate")
# the settings that the tab shows before it is asked for more
FIRST = ("method.name", "method.bits", "method.bucket_size", "optim.lr", "workers")
SECTIONS = ("method", "model", "optim", "schedule")
NAMES = ("data.name", "model.name", "optim.name", "schedule.name")
TOP = (
    *("batch_size", "steps", "trajectory", "label_smoothing", "exchange.collective", "measure.every", "untrain.steps"),
    *("threads", "stand_in"),
)


def names() -> dict[str, type]:
    """The settings that are shown, the same for every run, and the type of each."""
    schemas = [(section, schema) for section in SECTIONS for schema in args.GROUPS[section].values()]
    known: dict[str, Any] = {
        f"{section}.{key}": value for section, schema in schemas for key, value in vars(schema()).items()
    }
    default = sections.dotted(resolving.resolve({}))
    top = {name: default[name] for name in (*FIRST, *NAMES, *TOP)}
    return {name: type(value) for name, value in {**dict.fromkeys(FIRST), **known, **top}.items()}


def values(config: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the settings that this run reads: numbers, words and truth values; a list as text."""
    read = sections.dotted(config)
    found = {name: read[name] for name in names() if name in read}
    return {name: ",".join(map(str, value)) if isinstance(value, list) else value for name, value in found.items()}


def group(config: Mapping[str, Any]) -> str:
    """The name that the runs of one setting share whatever their seed, as in ``alq-3b-cnn-digits-0123456789abcd``."""
    one = {**config, "seed": 0}
    return run_identity.run_name(one).replace("-s0-", "-")


def started(config: Mapping[str, Any], at_s: float) -> Iterator[Any]:
    """The two records of a beginning run; at_s: unix seconds."""
    kinds = {bool: API.DATA_TYPE_BOOL, int: API.DATA_TYPE_FLOAT64, float: API.DATA_TYPE_FLOAT64}
    infos = [API.HParamInfo(name=name, type=kinds.get(kind, API.DATA_TYPE_STRING)) for name, kind in names().items()]
    for info in infos[: len(FIRST)]:
        # "differs" (field 7), which the tab puts first; younger than tensorboardX's definitions
        info.MergeFromString(b"\x38\x01")
    metrics = [API.MetricInfo(name=API.MetricName(tag=tag)) for tag in METRICS]
    yield _record("experiment", experiment=API.Experiment(hparam_infos=infos, metric_infos=metrics))
    start = PLUGIN.SessionStartInfo(group_name=group(config), start_time_secs=at_s)
    for name, value in values(config).items():
        if isinstance(value, bool):
            start.hparams[name].bool_value = value
        elif isinstance(value, int | float):
            start.hparams[name].number_value = value
        else:
            start.hparams[name].string_value = value
    yield _record("session_start_info", session_start_info=start)


def finished(at_s: float) -> Any:
    """The record of a run that is done.

    A failed run gets none: TensorBoard keeps the first record that it sees, and the run may be started again.
    """
    end = PLUGIN.SessionEndInfo(status=API.STATUS_SUCCESS, end_time_secs=at_s)
    return _record("session_end_info", session_end_info=end)


def _record(name: str, **content: Any) -> Any:
    data = PLUGIN.HParamsPluginData(version=0, **content).SerializeToString()
    plugin = SUMMARY.SummaryMetadata.PluginData(plugin_name="hparams", content=data)
    return SUMMARY.Summary(
        value=[SUMMARY.Summary.Value(tag=f"_hparams_/{name}", metadata=SUMMARY.SummaryMetadata(plugin_data=plugin))]
    )
