"""Small wrong changes of this code, each with what a user would lose by it; ``python -m tests.mutations`` makes them.

They were chosen by harm, before the tests were looked at.  A change whose place has moved is moved along.
"""

from __future__ import annotations

from typing import NamedTuple


class Edit(NamedTuple):
    """One replacement: ``old`` occurs once in the file."""

    file: str
    old: str
    new: str


class Change(NamedTuple):
    """A wrong change, what a user would lose, and the tests that should mean it."""

    loss: str
    tests: str
    edits: tuple[Edit, ...]


def change(loss: str, tests: str, file: str, old: str, new: str, *others: Edit) -> Change:
    """A change of one place, or of ``others`` too."""
    return Change(loss, tests, (Edit(file, old, new), *others))


JUDGE = "grid/engine/states/judge.py"
CHANGES: dict[str, Change] = {
    # --- library ---
    "dither_sign": change(
        "messages of ecdq decode to values that are off by the whole dither",
        "tests/nuq/kernels/test_cpu.py",
        "nuq/native/src/simd/decode.cpp",
        "value = value - (v - 0.5f) * step;",
        "value = value + (v - 0.5f) * step;",
    ),
    "mean_by_ranks": change(
        "two stages step along a mean that is too long where a rank hosts several workers",
        "tests/nuq/exchange/test_collectives.py",
        "nuq/exchange/collectives/two_stage.py",
        "sent.mean(owner, 1.0 / how.placement.num_workers, mean)",
        "sent.mean(owner, 1.0 / how.transport.world, mean)",
    ),
    "stale_format": change(
        "levels that were updated are not those by which gradients are encoded",
        "tests/nuq/exchange/test_first_levels.py tests/nuq/exchange/test_collectives.py",
        "nuq/compressors/quantizer.py",
        "        return _InUse(levels, multiplier, table, pieces)\n",
        '        self._first = getattr(self, "_first", pieces)\n'
        "        return _InUse(levels, multiplier, table, self._first)\n",
    ),
    "second_memory_lost": change(
        "a resumed run has lost the residuals of means (feedback.both)",
        "tests/nuq/test_ddp_state.py tests/nuq/exchange/test_saved_state.py",
        "nuq/exchange/compressor_map.py",
        'for around, memory in zip(self.memories, state.get("memories", ()), strict=True):',
        'for around, memory in list(zip(self.memories, state.get("memories", ()), strict=True))[:1]:',
    ),
    "residuals_lost": change(
        "a resumed run has lost all residuals",
        "tests/nuq/test_ddp_state.py tests/nuq/exchange/test_saved_state.py",
        "nuq/exchange/compressor_map.py",
        "            around.load_memory(memory, device)\n",
        "            del around, memory\n",
    ),
    "bytes_inside_machines": change(
        "bytes_sent of hierarchical leaves out most of what the network carries",
        "tests/nuq/test_bytes_sent.py",
        "nuq/exchange/driver.py",
        "        every = [self.transport, *self._compressing.inner_transports]\n",
        "        every = [self.transport]\n",
    ),
    "divide_factor": change(
        "set_gradient_divide_factor has no effect: other steps than the user asked for",
        "tests/nuq/exchange/test_misfits.py",
        "nuq/fsdp.py",
        "        return float(op.__getstate__()[1])\n",
        "        return 1.0 / world\n",
    ),
    "no_nesterov": change(
        "the outer optimizer is not DiLoCo's",
        "tests/nuq/test_outer.py",
        "nuq/fragments.py",
        "outer.sub_(mean.add(buffer, alpha=momentum) if nesterov else buffer, alpha=lr)",
        "outer.sub_(buffer, alpha=lr)",
    ),
    "loco_without_factor": change(
        "LoCo's memory in C++ takes off another message than the one that counted",
        "tests/nuq/test_fsdp_memory.py tests/nuq/compressors",
        "nuq/native/src/simd/floats.cpp",
        "error = job.wanted[i] - job.sent[i] * job.factor;",
        "error = job.wanted[i] - job.sent[i];",
    ),
    "short_bucket_on_gpu": change(
        "ranks with a GPU scale the last bucket otherwise than ranks with a CPU, and the simulation is another run",
        "tests/nuq/kernels/test_cuda.py",
        "nuq/kernels/cuda/encode.py",
        "rms = tl.sqrt(s / tl.maximum(lengths, 1).to(tl.float64)).to(tl.float32) * multiple",
        "rms = tl.sqrt(s / tl.maximum(tl.max(lengths, axis=0), 1).to(tl.float64)).to(tl.float32) * multiple",
    ),
    "levels_of_one_side": change(
        "symmetric levels of skewed gradients are fitted to the positive coordinates alone",
        "tests/nuq/levels/test_update_rules.py",
        "nuq/levels/update_rules.py",
        "objective, first, intervals = Objective(tabulated.folded(), symmetric=num_levels % 2 == 0)",
        "objective, first, intervals = Objective(tabulated, symmetric=num_levels % 2 == 0)",
    ),
    "server_mean": change(
        "a server that waits for some workers divides by all: every step is too short",
        "tests/nuq/exchange/test_collectives.py",
        "nuq/exchange/collectives/server.py",
        "scale(out, len(taken))",
        "scale(out, self.placement.num_workers)",
    ),
    "skipped_step_counts": change(
        "a step that the gradient scaler skips is missing from the residuals all the same",
        "tests/nuq/exchange/test_misfits.py",
        "nuq/exchange/hook/bucket_exchange.py",
        "memory.settle(undo=self._skipped)",
        "memory.settle(undo=False)",
    ),
    "steps_are_buckets": change(
        "levels are updated too early, once for so many of DDP's buckets in place of steps",
        "tests/nuq/test_ddp.py",
        "nuq/exchange/hook/bucket_exchange.py",
        "            self.step += last\n",
        "            self.step += 1\n",
    ),
    "experts_share_memory": change(
        "under FSDP2 parameters of equal length that take turns get each other's residuals",
        "tests/nuq/test_fsdp_memory.py",
        "nuq/fsdp_memory.py",
        "if (rows, size) == (self._rows, self._size) and (parts == self._parts or None in (parts, self._parts)):",
        "if (rows, size) == (self._rows, self._size):",
    ),
    "new_rank_without_momentum": change(
        "a rank that joins an outer loop has other outer parameters than the others after a round",
        "tests/nuq/test_outer_lost.py tests/nuq/test_outer.py",
        "nuq/outer.py",
        "for vector in (fragment.outer, fragment.momentum)]",
        "for vector in (fragment.outer,)]",
    ),
    # --- settings ---
    "younger_settings_do_not_count": change(
        "two experiments have one folder, and the second is taken for done",
        "tests/test_identity.py",
        "settings/run_identity.py",
        "return value != rule.value if isinstance(rule, Unless) else rule",
        "return rule is True",
    ),
    "highest_value_is_passed": change(
        "a setting above its range is taken, as momentum=1.5",
        "tests/errors/test_sentences.py",
        "nuq/settings/__init__.py",
        'if rule.get("high") is not None and not number <= rule["high"]:',
        'if rule.get("high") is not None and number is None:',
    ),
    # --- orchestrator ---
    "array_too_large": change(
        "the cluster refuses an array of more elements than it allows",
        "tests/grid/submission/test_plan.py",
        "grid/engine/submission/plan.py",
        "    parts = math.ceil(len(items) / most)\n",
        "    parts = len(items) // most\n",
    ),
    "killed_run_starts_at_once": change(
        "a run is started while the processes of its last attempt still write",
        "tests/grid/states",
        JUDGE,
        "return State(word, reason, held=wait_s > 0, wait_s=wait_s)",
        "return State(word, reason, held=False, wait_s=wait_s)",
    ),
    "failed_before_it_began": change(
        "a run that never began in its job is called failed, and left alone",
        "tests/grid/states",
        JUDGE,
        "had_begun = mine and seen is not None and not _is_before(seen, job) and not at_its_start",
        "had_begun = mine and seen is not None and not _is_before(seen, job)",
    ),
    "no_fsync": change(
        "after a power cut status.json is empty, and nobody can tell what became of the run",
        "tests/train/process/test_status.py",
        "files/atomic.py",
        "                os.fsync(file.fileno())\n",
        "                file.flush()\n",
    ),
    "retry_of_the_living": change(
        "retry starts a run twice",
        "tests/grid/states/test_outliving.py",
        "grid/engine/submission/retry.py",
        "        if not made.view.states[run].may_start:\n",
        "        if False:\n",
        Edit(
            "grid/engine/submission/planning.py",
            "run.run_dir in options.retry and state.may_start,",
            "run.run_dir in options.retry,",
        ),
    ),
    "dead_node_is_trusted_too_soon": change(
        "a run on a node that SLURM has given up is started while it lives on there",
        "tests/grid/states",
        JUDGE,
        "return STALE_S if job is not None and job.word in NODE_FAILURES else LAG_S",
        "return LAG_S",
    ),
    "sbatch_before_its_record": change(
        "a submission that is interrupted in sbatch is submitted a second time",
        "tests/grid/submission/test_faults.py tests/grid/submission/test_submission.py",
        "grid/engine/states/chunk_submission.py",
        "    submission.save(root)\n    try:\n        job_id = submit(path)\n",
        "    try:\n        job_id = submit(path)\n",
    ),
    "failed_canary_releases_all": change(
        "thousands of runs start although the canary has failed",
        "tests/grid/submission/test_plan.py tests/grid/submission/test_after.py",
        "grid/engine/submission/plan.py",
        'first = [("afterok", chunks[-1].name)]',
        'first = [("afterany", chunks[-1].name)]',
    ),
    "gpus_are_shared": change(
        "all slots of a job compute on its first GPU, and the others are idle",
        "tests/grid/scripts",
        "grid/engine/scripts/templates/own_gpus.sh",
        "for ((index = @first@; ",
        "for ((index = 0; ",
    ),
    # --- trainer ---
    "log_not_flushed": change(
        "after a power cut the log lacks steps before the checkpoint, for ever",
        "tests/train/steps/test_interrupted.py",
        "train/steps/train_loop.py",
        "            self.log.flush()\n",
        "",
    ),
    "augmentation_of_one_seed": change(
        "runs of all seeds see the same crops: the spread over seeds is too small",
        "tests/train/steps/test_randomness.py",
        "train/steps/gradients.py",
        'self.data.train_batch(indices, generator(self.config["seed"], step, worker, purpose))',
        "self.data.train_batch(indices, generator(0, step, worker, purpose))",
    ),
    "evaluation_in_training_mode": change(
        "test accuracies with dropout, and batch norms that learn from the test set",
        "tests/train/steps/test_randomness.py",
        "train/steps/gradients.py",
        "    model.eval()\n",
        "",
    ),
    "rate_of_the_next_step": change(
        "every step is taken at the next step's learning rate",
        "tests/train/steps/test_schedules.py tests/train/steps/test_optim.py",
        "train/steps/update.py",
        'optim.learning_rate(dict(config), step, group.get(muon.RATE, "lr"))',
        'optim.learning_rate(dict(config), step + 1, group.get(muon.RATE, "lr"))',
    ),
    "same_dropout_for_all_workers": change(
        "the workers' gradients are not independent: their mean is noisier than the method's",
        "tests/train/steps/test_randomness.py",
        "train/steps/gradients.py",
        'seed_of(self.config["seed"], step, worker, f"{purpose}/dropout")',
        'seed_of(self.config["seed"], step, 0, f"{purpose}/dropout")',
    ),
    "evaluates_a_worker": change(
        "with local steps the accuracy is that of one worker's model, not of the outer parameters",
        "tests/train/steps/test_local_steps.py",
        "train/steps/trainer.py",
        "            self.local.show()\n",
        "            pass\n",
    ),
    "bytes_begin_again": change(
        "of a resumed run the bytes are those since its last checkpoint: accuracy over bytes is wrong",
        "tests/train/steps/test_resume.py tests/train/steps/test_trainer.py",
        "train/steps/trainer.py",
        '        self.totals = Totals(**state["totals"])\n',
        "",
    ),
    # --- analysis ---
    "label_of_another_loss": change(
        "a figure of the training loss says validation loss",
        "tests/analysis/plots/test_figures.py",
        "analysis/plots/curves.py",
        '("Tloss", "loss"), "training loss", True)',
        '("Tloss", "loss"), "validation loss", True)',
    ),
    "gigabytes_for_megabytes": change(
        "an axis is off by a factor of 1,000",
        "tests/analysis/plots/test_figures.py tests/analysis/test_axes.py",
        "analysis/axes.py",
        '"sent by one worker (MB)"',
        '"sent by one worker (GB)"',
    ),
    "degrees_of_freedom": change(
        "intervals over three seeds are a quarter too narrow",
        "tests/analysis/groups",
        "analysis/groups/aggregate.py",
        "t = stdtrit(np.maximum(n - 1, 1), (1 + CONFIDENCE) / 2)",
        "t = stdtrit(np.maximum(n, 1), (1 + CONFIDENCE) / 2)",
    ),
    "damaged_records_count": change(
        "numbers that a broken disk has made are drawn as results",
        "tests/analysis/logs",
        "analysis/logs/events.py",
        'good = masked(crc32c(rows.T[:length])) == _view(rows[:, length : length + FOOTER], "<u4")',
        "good = np.ones(len(rows), bool)",
    ),
    "unfinished_runs_count": change(
        "a mean over seeds has the accuracies of runs that are half done",
        "tests/analysis/groups tests/analysis/tables",
        "analysis/groups/aggregate.py",
        'chosen = complete if complete.any() else _told(logs, "logged", seed_group)',
        'chosen = _told(logs, "logged", seed_group)',
    ),
    "bits_are_bytes": change(
        "predicted times over slow links are short by a factor of eight",
        "tests/analysis/plots/test_over_links.py tests/analysis/test_axes.py tests/analysis/prediction",
        "analysis/axes.py",
        "+ 8 * own.copies(own.workers) * sent / bandwidth",
        "+ own.copies(own.workers) * sent / bandwidth",
    ),
}
