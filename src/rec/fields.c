/*
 * One row per field of every payload. See fields.h.
 */
#include "rec/fields.h"

#include <string.h>

#define FIELD(type, member, label, what)                                               \
	{                                                                              \
		.name = label, .offset = offsetof(struct type, member),                \
		.size = sizeof(((struct type *)0)->member), .kind = SCRY_FIELD_##what, \
	}

static const struct scry_field fields_scry_ev_session[] = {
	FIELD(scry_ev_session, instrument_str, "instrument", STRING),
	FIELD(scry_ev_session, command_str, "command", STRING),
	FIELD(scry_ev_session, version_str, "version", STRING),
	FIELD(scry_ev_session, host_str, "host", STRING),
	FIELD(scry_ev_session, wall_ns, "wall_ns", NUMBER),
};
static const struct scry_field fields_scry_ev_string[] = {
	FIELD(scry_ev_string, id, "id", NUMBER),
	FIELD(scry_ev_string, length, "length", NUMBER),
};
static const struct scry_field fields_scry_ev_process[] = {
	FIELD(scry_ev_process, pid, "pid", NUMBER),
	FIELD(scry_ev_process, uid, "uid", NUMBER),
	FIELD(scry_ev_process, start_ticks, "start_ticks", NUMBER),
	FIELD(scry_ev_process, exe_str, "exe", STRING),
	FIELD(scry_ev_process, runtime_str, "runtime", STRING),
};
static const struct scry_field fields_scry_ev_site[] = {
	FIELD(scry_ev_site, site, "site", NUMBER),
	FIELD(scry_ev_site, pid, "pid", NUMBER),
	FIELD(scry_ev_site, file_str, "file", STRING),
	FIELD(scry_ev_site, line, "line", NUMBER),
	FIELD(scry_ev_site, class_str, "class", STRING),
	FIELD(scry_ev_site, method_str, "method", STRING),
	FIELD(scry_ev_site, flags, "flags", NUMBER),
	FIELD(scry_ev_site, slot_bytes, "slot_bytes", NUMBER),
	FIELD(scry_ev_site, stack, "stack", STACK),
	FIELD(scry_ev_site, reserved2, "reserved", RESERVED),
};
static const struct scry_field fields_scry_ev_objects[] = {
	FIELD(scry_ev_objects, site, "site", SITE),
	FIELD(scry_ev_objects, slice, "slice", NUMBER),
	FIELD(scry_ev_objects, allocated, "allocated", NUMBER),
	FIELD(scry_ev_objects, freed, "freed", NUMBER),
	FIELD(scry_ev_objects, bytes, "bytes", NUMBER),
	FIELD(scry_ev_objects, live_bytes, "live_bytes", NUMBER),
	FIELD(scry_ev_objects, freed_bytes, "freed_bytes", NUMBER),
	FIELD(scry_ev_objects, max_age, "max_age", NUMBER),
	FIELD(scry_ev_objects, flags, "flags", NUMBER),
	FIELD(scry_ev_objects, samples, "samples", NUMBER),
	FIELD(scry_ev_objects, live_samples, "live_samples", NUMBER),
	FIELD(scry_ev_objects, old_live, "old_live", NUMBER),
	FIELD(scry_ev_objects, old_live_bytes, "old_live_bytes", NUMBER),
	FIELD(scry_ev_objects, unfollowed, "unfollowed", NUMBER),
	FIELD(scry_ev_objects, unsized, "unsized", NUMBER),
	FIELD(scry_ev_objects, live_unsized, "live_unsized", NUMBER),
};
static const struct scry_field fields_scry_ev_alloc[] = {
	FIELD(scry_ev_alloc, address, "address", ADDRESS),
	FIELD(scry_ev_alloc, site, "site", SITE),
	FIELD(scry_ev_alloc, reserved, "reserved", RESERVED),
};
static const struct scry_field fields_scry_ev_free[] = {
	FIELD(scry_ev_free, address, "address", ADDRESS),
	FIELD(scry_ev_free, site, "site", SITE),
	FIELD(scry_ev_free, reserved, "reserved", RESERVED),
};
static const struct scry_field fields_scry_ev_lost[] = {
	FIELD(scry_ev_lost, count, "count", NUMBER),
	FIELD(scry_ev_lost, why_str, "why", STRING),
	FIELD(scry_ev_lost, processes, "processes", NUMBER),
};
static const struct scry_field fields_scry_ev_pause[] = {
	FIELD(scry_ev_pause, duration_ns, "duration_ns", NUMBER),
	FIELD(scry_ev_pause, threads, "threads", NUMBER),
	FIELD(scry_ev_pause, why_str, "why", STRING),
};
static const struct scry_field fields_scry_ev_attach[] = {
	FIELD(scry_ev_attach, pid, "pid", NUMBER),
	FIELD(scry_ev_attach, threads, "threads", NUMBER),
	FIELD(scry_ev_attach, agent_address, "agent_address", ADDRESS),
	FIELD(scry_ev_attach, agent_bytes, "agent_bytes", NUMBER),
	FIELD(scry_ev_attach, bytes_changed, "bytes_changed", NUMBER),
};
static const struct scry_field fields_scry_ev_detach[] = {
	FIELD(scry_ev_detach, pid, "pid", NUMBER),
	FIELD(scry_ev_detach, verified, "verified", NUMBER),
	FIELD(scry_ev_detach, bytes_restored, "bytes_restored", NUMBER),
	FIELD(scry_ev_detach, bytes_left, "bytes_left", NUMBER),
	FIELD(scry_ev_detach, reason_str, "reason", STRING),
	FIELD(scry_ev_detach, part, "part", NUMBER),
};
static const struct scry_field fields_scry_ev_note[] = {
	FIELD(scry_ev_note, text_str, "text", STRING),
	FIELD(scry_ev_note, is_cost, "is_cost", NUMBER),
};
static const struct scry_field fields_scry_ev_totals[] = {
	FIELD(scry_ev_totals, events, "events", NUMBER),
	FIELD(scry_ev_totals, lost, "lost", NUMBER),
	FIELD(scry_ev_totals, errors, "errors", NUMBER),
	FIELD(scry_ev_totals, pause_max_ns, "pause_max_ns", NUMBER),
	FIELD(scry_ev_totals, pause_total_ns, "pause_total_ns", NUMBER),
	FIELD(scry_ev_totals, target_cpu_ns, "target_cpu_ns", NUMBER),
	FIELD(scry_ev_totals, overhead_cpu_ns, "overhead_cpu_ns", NUMBER),
	FIELD(scry_ev_totals, watched_ns, "watched_ns", NUMBER),
	FIELD(scry_ev_totals, frees_older, "frees_older", NUMBER),
	FIELD(scry_ev_totals, pid, "pid", NUMBER),
	FIELD(scry_ev_totals, exit, "exit", NUMBER),
	FIELD(scry_ev_totals, gcs, "gcs", NUMBER),
	FIELD(scry_ev_totals, full_gcs, "full_gcs", NUMBER),
	FIELD(scry_ev_totals, compactions, "compactions", NUMBER),
	FIELD(scry_ev_totals, moved, "compaction_moved", NUMBER),
	FIELD(scry_ev_totals, sample_every, "sample_every", NUMBER),
	FIELD(scry_ev_totals, sample_bytes, "sample_bytes", NUMBER),
	FIELD(scry_ev_totals, forced_gc_ns, "forced_gc_ns", NUMBER),
	FIELD(scry_ev_totals, uncollected, "uncollected", NUMBER),
};
static const struct scry_field fields_scry_ev_count[] = {
	FIELD(scry_ev_count, symbol_str, "symbol", STRING),
	FIELD(scry_ev_count, module_str, "module", STRING),
	FIELD(scry_ev_count, way_str, "way", STRING),
	FIELD(scry_ev_count, pid, "pid", NUMBER),
	FIELD(scry_ev_count, calls, "calls", NUMBER),
	FIELD(scry_ev_count, address, "address", ADDRESS),
};
static const struct scry_field fields_scry_ev_time[] = {
	FIELD(scry_ev_time, symbol_str, "symbol", STRING),
	FIELD(scry_ev_time, module_str, "module", STRING),
	FIELD(scry_ev_time, way_str, "way", STRING),
	FIELD(scry_ev_time, pid, "pid", NUMBER),
	FIELD(scry_ev_time, address, "address", ADDRESS),
	FIELD(scry_ev_time, calls, "calls", NUMBER),
	FIELD(scry_ev_time, returned, "returned", NUMBER),
	FIELD(scry_ev_time, left, "left", NUMBER),
	FIELD(scry_ev_time, missed, "missed", NUMBER),
	FIELD(scry_ev_time, total_ns, "total_ns", NUMBER),
	FIELD(scry_ev_time, max_ns, "max_ns", NUMBER),
	FIELD(scry_ev_time, p50_ns, "p50_ns", NUMBER),
	FIELD(scry_ev_time, p99_ns, "p99_ns", NUMBER),
};
static const struct scry_field fields_scry_ev_stack[] = {
	FIELD(scry_ev_stack, id, "id", NUMBER),
	FIELD(scry_ev_stack, parent, "parent", STACK),
	FIELD(scry_ev_stack, file_str, "file", STRING),
	FIELD(scry_ev_stack, line, "line", NUMBER),
	FIELD(scry_ev_stack, method_str, "method", STRING),
	FIELD(scry_ev_stack, flags, "flags", NUMBER),
	FIELD(scry_ev_stack, offset, "offset", NUMBER),
	FIELD(scry_ev_stack, address, "address", ADDRESS),
};
static const struct scry_field fields_scry_ev_slice[] = {
	FIELD(scry_ev_slice, slice, "slice", NUMBER),
	FIELD(scry_ev_slice, pid, "pid", NUMBER),
	FIELD(scry_ev_slice, begin_ns, "begin_ns", NUMBER),
	FIELD(scry_ev_slice, end_ns, "end_ns", NUMBER),
	FIELD(scry_ev_slice, gc_count, "gc_count", NUMBER),
	FIELD(scry_ev_slice, rss_bytes, "rss_bytes", NUMBER),
};
static const struct scry_field fields_scry_ev_malloc[] = {
	FIELD(scry_ev_malloc, pid, "pid", NUMBER),
	FIELD(scry_ev_malloc, function, "function", NUMBER),
	FIELD(scry_ev_malloc, flags, "flags", NUMBER),
	FIELD(scry_ev_malloc, thread, "thread", NUMBER),
	FIELD(scry_ev_malloc, caller, "caller", NUMBER),
	FIELD(scry_ev_malloc, block, "block", NUMBER),
	FIELD(scry_ev_malloc, size, "size", NUMBER),
	FIELD(scry_ev_malloc, usable, "usable", NUMBER),
	FIELD(scry_ev_malloc, align, "align", NUMBER),
};
static const struct scry_field fields_scry_ev_caller[] = {
	FIELD(scry_ev_caller, caller, "caller", NUMBER),
	FIELD(scry_ev_caller, pid, "pid", NUMBER),
	FIELD(scry_ev_caller, module_str, "module", STRING),
	FIELD(scry_ev_caller, symbol_str, "symbol", STRING),
	FIELD(scry_ev_caller, offset, "offset", ADDRESS),
	FIELD(scry_ev_caller, file_str, "file", STRING),
	FIELD(scry_ev_caller, line, "line", NUMBER),
	FIELD(scry_ev_caller, method_str, "method", STRING),
	FIELD(scry_ev_caller, flags, "flags", NUMBER),
	FIELD(scry_ev_caller, stack, "stack", STACK),
	FIELD(scry_ev_caller, reserved, "reserved", RESERVED),
};
static const struct scry_field fields_scry_ev_thread[] = {
	FIELD(scry_ev_thread, thread, "thread", NUMBER),
	FIELD(scry_ev_thread, pid, "pid", NUMBER),
	FIELD(scry_ev_thread, tid, "tid", NUMBER),
	FIELD(scry_ev_thread, name_str, "name", STRING),
};
static const struct scry_field fields_scry_ev_memory[] = {
	FIELD(scry_ev_memory, pid, "pid", NUMBER),
	FIELD(scry_ev_memory, threads, "threads", NUMBER),
	FIELD(scry_ev_memory, rss_anon, "rss_anon", NUMBER),
	FIELD(scry_ev_memory, rss_file, "rss_file", NUMBER),
	FIELD(scry_ev_memory, rss_shmem, "rss_shmem", NUMBER),
	FIELD(scry_ev_memory, faults, "faults", NUMBER),
	FIELD(scry_ev_memory, major_faults, "major_faults", NUMBER),
	FIELD(scry_ev_memory, user_ns, "user_ns", NUMBER),
	FIELD(scry_ev_memory, system_ns, "system_ns", NUMBER),
	FIELD(scry_ev_memory, rss_peak, "rss_peak", NUMBER),
	FIELD(scry_ev_memory, held, "held", NUMBER),
	FIELD(scry_ev_memory, arenas, "arenas", NUMBER),
	FIELD(scry_ev_memory, arenas_held, "arenas_held", NUMBER),
};
static const struct scry_field fields_scry_ev_object_file[] = {
	FIELD(scry_ev_object_file, pid, "pid", NUMBER),
	FIELD(scry_ev_object_file, module_str, "module", STRING),
	FIELD(scry_ev_object_file, build_str, "build_id", STRING),
	FIELD(scry_ev_object_file, flags, "flags", NUMBER),
};
static const struct scry_field fields_scry_ev_allocator[] = {
	FIELD(scry_ev_allocator, pid, "pid", NUMBER),
	FIELD(scry_ev_allocator, module_str, "module", STRING),
	FIELD(scry_ev_allocator, name_str, "name", STRING),
	FIELD(scry_ev_allocator, flags, "flags", NUMBER),
	FIELD(scry_ev_allocator, older_blocks, "older_blocks", NUMBER),
	FIELD(scry_ev_allocator, older_bytes, "older_bytes", NUMBER),
};
static const struct scry_field fields_scry_ev_function[] = {
	FIELD(scry_ev_function, function, "function", NUMBER),
	FIELD(scry_ev_function, pid, "pid", NUMBER),
	FIELD(scry_ev_function, symbol_str, "symbol", STRING),
	FIELD(scry_ev_function, module_str, "module", STRING),
	FIELD(scry_ev_function, way_str, "way", STRING),
	FIELD(scry_ev_function, prototype_str, "prototype", STRING),
	FIELD(scry_ev_function, address, "address", ADDRESS),
	FIELD(scry_ev_function, caller_str, "caller", STRING),
	FIELD(scry_ev_function, aliases_str, "aliases", STRING),
};
static const struct scry_field fields_scry_ev_entry[] = {
	FIELD(scry_ev_entry, function, "function", NUMBER),
	FIELD(scry_ev_entry, pid, "pid", NUMBER),
	FIELD(scry_ev_entry, args, "args", NUMBER),
	FIELD(scry_ev_entry, reserved, "reserved", RESERVED),
	FIELD(scry_ev_entry, arg1, "arg1", ADDRESS),
	FIELD(scry_ev_entry, arg2, "arg2", ADDRESS),
	FIELD(scry_ev_entry, arg3, "arg3", ADDRESS),
	FIELD(scry_ev_entry, arg4, "arg4", ADDRESS),
	FIELD(scry_ev_entry, arg5, "arg5", ADDRESS),
	FIELD(scry_ev_entry, arg6, "arg6", ADDRESS),
};

static const struct scry_field fields_scry_ev_call[] = {
	FIELD(scry_ev_call, function, "function", NUMBER),
	FIELD(scry_ev_call, pid, "pid", NUMBER),
	FIELD(scry_ev_call, call, "call", NUMBER),
	FIELD(scry_ev_call, args, "args", NUMBER),
	FIELD(scry_ev_call, reserved, "reserved", RESERVED),
	FIELD(scry_ev_call, more_bytes, "more_bytes", NUMBER),
	FIELD(scry_ev_call, flags, "flags", NUMBER),
	FIELD(scry_ev_call, arg1, "arg1", ADDRESS),
	FIELD(scry_ev_call, arg2, "arg2", ADDRESS),
	FIELD(scry_ev_call, arg3, "arg3", ADDRESS),
	FIELD(scry_ev_call, arg4, "arg4", ADDRESS),
	FIELD(scry_ev_call, arg5, "arg5", ADDRESS),
	FIELD(scry_ev_call, arg6, "arg6", ADDRESS),
};
static const struct scry_field fields_scry_ev_called[] = {
	FIELD(scry_ev_called, pid, "pid", NUMBER),
	FIELD(scry_ev_called, stack, "stack", STACK),
	FIELD(scry_ev_called, call, "call", NUMBER),
};
static const struct scry_field fields_scry_ev_signal[] = {
	FIELD(scry_ev_signal, pid, "pid", NUMBER),
	FIELD(scry_ev_signal, signal, "signal", NUMBER),
};
static const struct scry_field fields_scry_ev_return[] = {
	FIELD(scry_ev_return, function, "function", NUMBER),
	FIELD(scry_ev_return, pid, "pid", NUMBER),
	FIELD(scry_ev_return, call, "call", NUMBER),
	FIELD(scry_ev_return, result, "result", ADDRESS),
	FIELD(scry_ev_return, duration_ns, "duration_ns", NUMBER),
	FIELD(scry_ev_return, how, "how", NUMBER),
	FIELD(scry_ev_return, more_bytes, "more_bytes", NUMBER),
};
static const struct scry_field fields_scry_ev_samples[] = {
	FIELD(scry_ev_samples, pid, "pid", NUMBER),
	FIELD(scry_ev_samples, thread, "thread", NUMBER),
	FIELD(scry_ev_samples, stack, "stack", STACK),
	FIELD(scry_ev_samples, state, "state", NUMBER),
	FIELD(scry_ev_samples, count, "count", NUMBER),
	FIELD(scry_ev_samples, wall_ns, "wall_ns", NUMBER),
	FIELD(scry_ev_samples, cpu_ns, "cpu_ns", NUMBER),
	FIELD(scry_ev_samples, repaired, "repaired", NUMBER),
};
static const struct scry_field fields_scry_ev_sampling[] = {
	FIELD(scry_ev_sampling, pid, "pid", NUMBER),
	FIELD(scry_ev_sampling, rate, "rate", NUMBER),
	FIELD(scry_ev_sampling, ticks, "ticks", NUMBER),
	FIELD(scry_ev_sampling, missed, "missed", NUMBER),
	FIELD(scry_ev_sampling, valid, "valid", NUMBER),
	FIELD(scry_ev_sampling, repaired, "repaired", NUMBER),
	FIELD(scry_ev_sampling, rejected, "rejected", NUMBER),
	FIELD(scry_ev_sampling, unchanged, "unchanged", NUMBER),
	FIELD(scry_ev_sampling, dropped, "dropped", NUMBER),
	FIELD(scry_ev_sampling, collects, "collects", NUMBER),
	FIELD(scry_ev_sampling, sampler_ns, "sampler_ns", NUMBER),
	FIELD(scry_ev_sampling, busy_ns, "busy_ns", NUMBER),
	FIELD(scry_ev_sampling, clocked, "clocked", NUMBER),
	FIELD(scry_ev_sampling, lost, "lost", NUMBER),
	FIELD(scry_ev_sampling, kernel_ns, "kernel_ns", NUMBER),
};
static const struct scry_field fields_scry_ev_pauses[] = {
	FIELD(scry_ev_pauses, pid, "pid", NUMBER),
	FIELD(scry_ev_pauses, threads, "threads", NUMBER),
	FIELD(scry_ev_pauses, count, "count", NUMBER),
	FIELD(scry_ev_pauses, total_ns, "total_ns", NUMBER),
	FIELD(scry_ev_pauses, median_ns, "median_ns", NUMBER),
	FIELD(scry_ev_pauses, longest_ns, "longest_ns", NUMBER),
	FIELD(scry_ev_pauses, spared, "spared", NUMBER),
	FIELD(scry_ev_pauses, late, "late", NUMBER),
	FIELD(scry_ev_pauses, again, "again", NUMBER),
};
static const struct scry_field fields_scry_ev_naming[] = {
	FIELD(scry_ev_naming, pid, "pid", NUMBER),
	FIELD(scry_ev_naming, differ, "differ", NUMBER),
	FIELD(scry_ev_naming, agree, "agree", NUMBER),
	FIELD(scry_ev_naming, gone, "gone", NUMBER),
	FIELD(scry_ev_naming, born, "born", NUMBER),
	FIELD(scry_ev_naming, lost, "lost", NUMBER),
	FIELD(scry_ev_naming, late, "late", NUMBER),
	FIELD(scry_ev_naming, nameless, "nameless", NUMBER),
	FIELD(scry_ev_naming, reported, "reported", NUMBER),
};
static const struct scry_field fields_scry_ev_lock[] = {
	FIELD(scry_ev_lock, lock, "lock", NUMBER),
	FIELD(scry_ev_lock, pid, "pid", NUMBER),
	FIELD(scry_ev_lock, is_condition, "is_condition", NUMBER),
	FIELD(scry_ev_lock, kind_str, "kind", STRING),
	FIELD(scry_ev_lock, module_str, "module", STRING),
	FIELD(scry_ev_lock, symbol_str, "symbol", STRING),
	FIELD(scry_ev_lock, address, "address", ADDRESS),
	FIELD(scry_ev_lock, offset, "offset", ADDRESS),
};
static const struct scry_field fields_scry_ev_wait[] = {
	FIELD(scry_ev_wait, lock, "lock", NUMBER),
	FIELD(scry_ev_wait, pid, "pid", NUMBER),
	FIELD(scry_ev_wait, stack, "stack", STACK),
	FIELD(scry_ev_wait, owner, "owner", NUMBER),
	FIELD(scry_ev_wait, function_str, "function", STRING),
	FIELD(scry_ev_wait, how, "how", NUMBER),
	FIELD(scry_ev_wait, duration_ns, "duration_ns", NUMBER),
};
static const struct scry_field fields_scry_ev_gvl[] = {
	FIELD(scry_ev_gvl, pid, "pid", NUMBER),
	FIELD(scry_ev_gvl, can_take_back, "can_take_back", NUMBER),
	FIELD(scry_ev_gvl, watched_ns, "watched_ns", NUMBER),
	FIELD(scry_ev_gvl, unknown_ns, "unknown_ns", NUMBER),
	FIELD(scry_ev_gvl, contended_ns, "contended_ns", NUMBER),
	FIELD(scry_ev_gvl, ends, "ends", NUMBER),
	FIELD(scry_ev_gvl, runnable0_ns, "runnable0_ns", NUMBER),
	FIELD(scry_ev_gvl, runnable1_ns, "runnable1_ns", NUMBER),
	FIELD(scry_ev_gvl, runnable2_ns, "runnable2_ns", NUMBER),
	FIELD(scry_ev_gvl, runnable3_ns, "runnable3_ns", NUMBER),
	FIELD(scry_ev_gvl, runnable4_ns, "runnable4_ns", NUMBER),
	FIELD(scry_ev_gvl, runnable5_ns, "runnable5_ns", NUMBER),
	FIELD(scry_ev_gvl, runnable6_ns, "runnable6_ns", NUMBER),
	FIELD(scry_ev_gvl, runnable7_ns, "runnable7_ns", NUMBER),
	FIELD(scry_ev_gvl, handing_ns, "handing_ns", NUMBER),
	FIELD(scry_ev_gvl, unpaired_ns, "unpaired_ns", NUMBER),
	FIELD(scry_ev_gvl, cpu_ns, "cpu_ns", NUMBER),
	FIELD(scry_ev_gvl, stacks, "stacks", NUMBER),
	FIELD(scry_ev_gvl, unstacked, "unstacked", NUMBER),
	FIELD(scry_ev_gvl, crowded, "crowded", NUMBER),
	FIELD(scry_ev_gvl, crowded_after_ns, "crowded_after_ns", NUMBER),
	FIELD(scry_ev_gvl, ractors, "ractors", NUMBER),
	FIELD(scry_ev_gvl, unread, "unread", NUMBER),
	FIELD(scry_ev_gvl, boot_ns, "boot_ns", NUMBER),
	FIELD(scry_ev_gvl, ractor, "ractor", NUMBER),
	FIELD(scry_ev_gvl, is_over, "is_over", NUMBER),
};
static const struct scry_field fields_scry_ev_gvl_thread[] = {
	FIELD(scry_ev_gvl_thread, pid, "pid", NUMBER),
	FIELD(scry_ev_gvl_thread, thread, "thread", NUMBER),
	FIELD(scry_ev_gvl_thread, tid, "tid", NUMBER),
	FIELD(scry_ev_gvl_thread, name_str, "name", STRING),
	FIELD(scry_ev_gvl_thread, threads, "threads", NUMBER),
	FIELD(scry_ev_gvl_thread, has_ended, "has_ended", NUMBER),
	FIELD(scry_ev_gvl_thread, held_ns, "held_ns", NUMBER),
	FIELD(scry_ev_gvl_thread, wanted_ns, "wanted_ns", NUMBER),
	FIELD(scry_ev_gvl_thread, granted_ns, "granted_ns", NUMBER),
	FIELD(scry_ev_gvl_thread, without_ns, "without_ns", NUMBER),
	FIELD(scry_ev_gvl_thread, unknown_ns, "unknown_ns", NUMBER),
	FIELD(scry_ev_gvl_thread, takes, "takes", NUMBER),
	FIELD(scry_ev_gvl_thread, yields, "yields", NUMBER),
	FIELD(scry_ev_gvl_thread, taken_back, "taken_back", NUMBER),
	FIELD(scry_ev_gvl_thread, waits, "waits", NUMBER),
	FIELD(scry_ev_gvl_thread, p50_ns, "p50_ns", NUMBER),
	FIELD(scry_ev_gvl_thread, p90_ns, "p90_ns", NUMBER),
	FIELD(scry_ev_gvl_thread, p99_ns, "p99_ns", NUMBER),
	FIELD(scry_ev_gvl_thread, max_ns, "max_ns", NUMBER),
	FIELD(scry_ev_gvl_thread, lost_ns, "lost_ns", NUMBER),
	FIELD(scry_ev_gvl_thread, older_ns, "older_ns", NUMBER),
	FIELD(scry_ev_gvl_thread, open_ns, "open_ns", NUMBER),
	FIELD(scry_ev_gvl_thread, passes, "passes", NUMBER),
	FIELD(scry_ev_gvl_thread, forced, "forced", NUMBER),
	FIELD(scry_ev_gvl_thread, overtakes, "overtakes", NUMBER),
	FIELD(scry_ev_gvl_thread, runs, "runs", NUMBER),
	FIELD(scry_ev_gvl_thread, runs_ns, "runs_ns", NUMBER),
	FIELD(scry_ev_gvl_thread, run_max_ns, "run_max_ns", NUMBER),
	FIELD(scry_ev_gvl_thread, run_most, "run_most", NUMBER),
	FIELD(scry_ev_gvl_thread, cpu_ns, "cpu_ns", NUMBER),
	FIELD(scry_ev_gvl_thread, ran_held_ns, "ran_held_ns", NUMBER),
	FIELD(scry_ev_gvl_thread, ran_else_ns, "ran_else_ns", NUMBER),
	FIELD(scry_ev_gvl_thread, looks, "looks", NUMBER),
	FIELD(scry_ev_gvl_thread, contradicted, "contradicted", NUMBER),
};
static const struct scry_field fields_scry_ev_gvl_line[] = {
	FIELD(scry_ev_gvl_line, pid, "pid", NUMBER),
	FIELD(scry_ev_gvl_line, holder, "holder", NUMBER),
	FIELD(scry_ev_gvl_line, stack, "stack", STACK),
	FIELD(scry_ev_gvl_line, samples, "samples", NUMBER),
	FIELD(scry_ev_gvl_line, lost_ns, "lost_ns", NUMBER),
};
static const struct scry_field fields_scry_ev_gvl_wait_line[] = {
	FIELD(scry_ev_gvl_wait_line, pid, "pid", NUMBER),
	FIELD(scry_ev_gvl_wait_line, waiter, "waiter", NUMBER),
	FIELD(scry_ev_gvl_wait_line, stack, "stack", STACK),
	FIELD(scry_ev_gvl_wait_line, samples, "samples", NUMBER),
	FIELD(scry_ev_gvl_wait_line, lost_ns, "lost_ns", NUMBER),
	FIELD(scry_ev_gvl_wait_line, waits, "waits", NUMBER),
	FIELD(scry_ev_gvl_wait_line, max_ns, "max_ns", NUMBER),
};
static const struct scry_field fields_scry_ev_gvl_pair[] = {
	FIELD(scry_ev_gvl_pair, pid, "pid", NUMBER),
	FIELD(scry_ev_gvl_pair, waiter, "waiter", NUMBER),
	FIELD(scry_ev_gvl_pair, holder, "holder", NUMBER),
	FIELD(scry_ev_gvl_pair, waits, "waits", NUMBER),
	FIELD(scry_ev_gvl_pair, lost_ns, "lost_ns", NUMBER),
};
static const struct scry_field fields_scry_ev_syscalls[] = {
	FIELD(scry_ev_syscalls, flags, "flags", NUMBER),
	FIELD(scry_ev_syscalls, rate, "rate", NUMBER),
	FIELD(scry_ev_syscalls, ticks, "ticks", NUMBER),
	FIELD(scry_ev_syscalls, inside, "inside", NUMBER),
	FIELD(scry_ev_syscalls, unplaced, "unplaced", NUMBER),
	FIELD(scry_ev_syscalls, calls, "calls", NUMBER),
	FIELD(scry_ev_syscalls, nowhere, "nowhere", NUMBER),
	FIELD(scry_ev_syscalls, exits, "exits", NUMBER),
	FIELD(scry_ev_syscalls, killed, "killed", NUMBER),
	FIELD(scry_ev_syscalls, lost, "lost", NUMBER),
	FIELD(scry_ev_syscalls, strangers, "strangers", NUMBER),
	FIELD(scry_ev_syscalls, unnamed, "unnamed", NUMBER),
	FIELD(scry_ev_syscalls, watched_ns, "watched_ns", NUMBER),
	FIELD(scry_ev_syscalls, cpu_ns, "cpu_ns", NUMBER),
	FIELD(scry_ev_syscalls, before_ns, "before_ns", NUMBER),
	FIELD(scry_ev_syscalls, with_ns, "with_ns", NUMBER),
	FIELD(scry_ev_syscalls, line_samples, "line_samples", NUMBER),
	FIELD(scry_ev_syscalls, children, "children", NUMBER),
	FIELD(scry_ev_syscalls, ran_ns, "ran_ns", NUMBER),
};
static const struct scry_field fields_scry_ev_syscall_site[] = {
	FIELD(scry_ev_syscall_site, site, "site", NUMBER),
	FIELD(scry_ev_syscall_site, pid, "pid", NUMBER),
	FIELD(scry_ev_syscall_site, image, "image", NUMBER),
	FIELD(scry_ev_syscall_site, number, "number", NUMBER),
	FIELD(scry_ev_syscall_site, abi, "abi", NUMBER),
	FIELD(scry_ev_syscall_site, name_str, "name", STRING),
	FIELD(scry_ev_syscall_site, module_str, "module", STRING),
	FIELD(scry_ev_syscall_site, symbol_str, "symbol", STRING),
	FIELD(scry_ev_syscall_site, offset, "offset", NUMBER),
	FIELD(scry_ev_syscall_site, address, "address", ADDRESS),
};
static const struct scry_field fields_scry_ev_syscall[] = {
	FIELD(scry_ev_syscall, site, "site", NUMBER),
	FIELD(scry_ev_syscall, pid, "pid", NUMBER),
	FIELD(scry_ev_syscall, tid, "tid", NUMBER),
	FIELD(scry_ev_syscall, thread_str, "thread", STRING),
	FIELD(scry_ev_syscall, calls, "calls", NUMBER),
	FIELD(scry_ev_syscall, errors, "errors", NUMBER),
	FIELD(scry_ev_syscall, again, "again", NUMBER),
	FIELD(scry_ev_syscall, absent, "absent", NUMBER),
	FIELD(scry_ev_syscall, ticks, "ticks", NUMBER),
	FIELD(scry_ev_syscall, asked, "asked", NUMBER),
	FIELD(scry_ev_syscall, vain, "vain", NUMBER),
	FIELD(scry_ev_syscall, what, "what", NUMBER),
	FIELD(scry_ev_syscall, error, "error", NUMBER),
	FIELD(scry_ev_syscall, timed, "timed", NUMBER),
	FIELD(scry_ev_syscall, total_ns, "total_ns", NUMBER),
	FIELD(scry_ev_syscall, max_ns, "max_ns", NUMBER),
	FIELD(scry_ev_syscall, vain_ticks, "vain_ticks", NUMBER),
	FIELD(scry_ev_syscall, again_ticks, "again_ticks", NUMBER),
	FIELD(scry_ev_syscall, absent_ticks, "absent_ticks", NUMBER),
};
static const struct scry_field fields_scry_ev_syscall_time[] = {
	FIELD(scry_ev_syscall_time, site, "site", NUMBER),
	FIELD(scry_ev_syscall_time, reserved, "reserved", RESERVED),
	FIELD(scry_ev_syscall_time, from_ns, "from_ns", NUMBER),
	FIELD(scry_ev_syscall_time, to_ns, "to_ns", NUMBER),
	FIELD(scry_ev_syscall_time, calls, "calls", NUMBER),
};
static const struct scry_field fields_scry_ev_syscall_stack[] = {
	FIELD(scry_ev_syscall_stack, site, "site", NUMBER),
	FIELD(scry_ev_syscall_stack, stack, "stack", STACK),
	FIELD(scry_ev_syscall_stack, count, "count", NUMBER),
};
static const struct scry_field fields_scry_ev_syscall_path[] = {
	FIELD(scry_ev_syscall_path, site, "site", NUMBER),
	FIELD(scry_ev_syscall_path, path_str, "path", STRING),
	FIELD(scry_ev_syscall_path, count, "count", NUMBER),
};
static const struct scry_field fields_scry_ev_syscall_line[] = {
	FIELD(scry_ev_syscall_line, site, "site", NUMBER),
	FIELD(scry_ev_syscall_line, stack, "stack", STACK),
	FIELD(scry_ev_syscall_line, count, "count", NUMBER),
};

static const struct scry_event_kind kinds[] = {
#define SCRY_EVENT(id, NAME, label, payload, what)                                     \
	[id] = {                                                                       \
		.name = #label,                                                        \
		.meaning = what,                                                       \
		.payload_size = sizeof(struct payload),                                \
		.fields = fields_##payload,                                            \
		.field_count = sizeof(fields_##payload) / sizeof(fields_##payload[0]), \
	},
#include "wire/events.def"
#undef SCRY_EVENT
};

const struct scry_event_kind *scry_event_kind(uint16_t type)
{
	if (type >= sizeof(kinds) / sizeof(kinds[0]) || !kinds[type].name)
		return NULL;
	return &kinds[type];
}

uint64_t scry_field_value(const struct scry_field *field, const struct scry_event *event)
{
	const char *at = (const char *)(event + 1) + field->offset;
	uint64_t wide;
	uint32_t narrow;

	if (field->size == sizeof(wide)) {
		memcpy(&wide, at, sizeof(wide));
		return wide;
	}
	memcpy(&narrow, at, sizeof(narrow));
	return narrow;
}
