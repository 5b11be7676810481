#!/usr/bin/env bash
# report.sh FILE: the table of what measure.sh wrote to FILE. Rows whose values are missing are left out.
set -euo pipefail
results=${1:?which results?}

value() { sed -n "s/^$1 //p" "$results" | tail -n 1; }
have() {
    local key
    for key in "$@"; do [ -n "$(value "$key")" ] || return 1; done
}
ratio() { awk "BEGIN { printf \"%.2f\", $(value "$1") / $(value "$2") }"; }
number() { # KEY [DECIMALS]: with commas between thousands
    awk -v x="$(value "$1")" -v d="${2:-0}" 'BEGIN { printf "%.*f", d, x }' | sed -E ':a; s/^([0-9]+)([0-9]{3})/\1,\2/; ta'
}
holds() { awk "BEGIN { exit !($1) }"; }
verdict() { if holds "$1"; then echo yes; else echo NO; fi; }

rows=()
row() { rows+=("$1|$2|$3|$4"); } # WHAT MEASURED BAR MET

if have update_ratio update_bare_tps update_captured_tps; then
    r=$(number update_ratio 2)
    row 'one-row UPDATE, 8 clients: captured / bare' "$r  ($(number update_captured_tps) / $(number update_bare_tps) tps)" '>= 0.85' "$(verdict "$(value update_ratio) >= 0.85")"
fi
if have update_bare_cpu update_captured_cpu; then
    row '  processor time per UPDATE, captured / bare' "$(ratio update_captured_cpu update_bare_cpu)  ($(number update_captured_cpu) / $(number update_bare_cpu) us; the conductor beside it $(number update_captured_conductor) us)" '' ''
fi
if have bulk_bare_seconds bulk_captured_seconds bulk_peak_mb; then
    r=$(ratio bulk_captured_seconds bulk_bare_seconds)
    row "UPDATE of $(number bulk_rows) rows: captured / bare time" "$r  ($(number bulk_captured_seconds 2) / $(number bulk_bare_seconds 2) s)" '<= 2.0' "$(verdict "$r <= 2.0")"
    row '  processor time per row, captured / bare' "$(ratio bulk_captured_cpu bulk_bare_cpu)  ($(number bulk_captured_cpu 1) / $(number bulk_bare_cpu 1) us)" '' ''
    row '  private memory of the backend, peak' "$(number bulk_peak_mb 1) MB" '<= 256 MB' "$(verdict "$(value bulk_peak_mb) <= 256")"
    row '  its events routed to nobody' "$(number bulk_routed_per_second) events/s" '' ''
fi
if have floor_1 floor_2; then
    row 'floor: plain SQL loop, 1 session' "$(number floor_1) runs/s  (best $(number floor_best); $(number floor_1_cpu 1) us CPU/run)" '' ''
    row 'floor: plain SQL loop, 2 sessions' "$(number floor_2) runs/s" '' ''
fi
for how in one_by_one at_once; do
    have "drain_$how" floor_best || continue
    case $how in
        one_by_one) what='backlog drained, written by as many transactions' ;;
        at_once) what='backlog drained, written by one transaction' ;;
    esac
    row "$what" "$(number "drain_$how") runs/s  ($(number "drain_${how}_cpu" 1) us CPU/run, $(value "drain_${how}_executors") executors)" '' ''
    r=$(ratio "drain_$how" floor_best)
    row '  to the best 1-session floor' "$r" '>= 0.3, aim 0.5' "$(verdict "$r >= 0.3")"
    row '  WAL per run' "$(number "drain_${how}_wal") bytes" '' ''
    row '  dead rows per run' "$(number "drain_${how}_dead" 2)" '' ''
done
if have drain_beside_writer writer_tps; then
    row 'backlog drained beside a 20-client writer' "$(number drain_beside_writer) runs/s  (writer $(number writer_tps) tps)" '' ''
fi
if have drain_held_snapshot drain_free_snapshot; then
    r=$(ratio drain_held_snapshot drain_free_snapshot)
    row "backlog drained after $(value held_seconds) s of load under a held snapshot / without" "$r  ($(number drain_held_snapshot) / $(number drain_free_snapshot) runs/s)" '>= 0.85' "$(verdict "$r >= 0.85")"
    row '  processor time per run, likewise' "$(ratio drain_held_snapshot_cpu drain_free_snapshot_cpu)  ($(number drain_held_snapshot_cpu 1) / $(number drain_free_snapshot_cpu 1) us)" '' ''
fi
if have latency_committed_p50 latency_committed_p99 latency_visible_p50; then
    row 'change committed -> effect committed, 50/s' \
        "p50 $(value latency_committed_p50), p99 $(value latency_committed_p99), max $(value latency_committed_max) ms" 'p50 <= 2, p99 <= 10 ms' \
        "$(verdict "$(value latency_committed_p50) <= 2 && $(value latency_committed_p99) <= 10")"
    row '  change made -> effect seen by a session that looks every 0.2 ms' \
        "p50 $(value latency_visible_p50), p99 $(value latency_visible_p99), max $(value latency_visible_max) ms" '' ''
    row '  beside it: a bare one-row commit' "$(number latency_bare_commit 2) ms" '' ''
    row '  change -> step executes' "p50 $(value latency_step_p50), p99 $(value latency_step_p99), max $(value latency_step_max) ms" '' ''
    row '  change -> run ended (history)' "p50 $(value latency_history_p50), p99 $(value latency_history_p99), max $(value latency_history_max) ms" '' ''
fi
if have idle_transactions; then
    row "idle, 10 automations, executors leaving: transactions in $(value idle_seconds) s" "$(value idle_transactions)" '0' "$(verdict "$(value idle_transactions) == 0")"
fi

if have steps_one steps_five steps_five_sql; then
    r=$(ratio steps_five steps_one)
    row 'runs of five steps in one walk / of one step' "$r  ($(number steps_five) / $(number steps_one) runs/s)" '>= 0.60' "$(verdict "$r >= 0.60")"
    row '  all five with SQL of their own' "$(ratio steps_five_sql steps_one)  ($(number steps_five_sql) runs/s)" '' ''
fi
if have waits_suspended_per_second waits_woken_per_second; then
    row 'runs suspended, from the change on' "$(number waits_suspended_per_second) runs/s" '' ''
    row 'runs woken, from the change to the effect' "$(number waits_woken_per_second) runs/s" '' ''
    r=$(ratio waits_routing_many waits_routing_few)
    row "routing one change with $(number waits_many) waits / with 1,000" "$r  ($(number waits_routing_many 1) / $(number waits_routing_few 1) us)" '<= 1.5' "$(verdict "$r <= 1.5")"
    r=$(ratio waits_timer_rate_few waits_timer_rate_many)
    row '  arming and firing one timer, likewise' "$r  ($(number waits_timer_rate_many) / $(number waits_timer_rate_few) runs/s)" '<= 1.5' "$(verdict "$r <= 1.5")"
    row '  private memory of the workers, likewise' "$(number waits_memory_many 1) / $(number waits_memory_few 1) MB" '' ''
    row "  transactions in $(value idle_seconds) s while they wait" "$(value waits_idle_transactions)" '0' "$(verdict "$(value waits_idle_transactions) == 0")"
fi

if have triggers_other_few triggers_other_many; then
    r=$(ratio triggers_other_many triggers_other_few)
    row "routing one event with $(number triggers_many) automations on other topics / with 10" "$r  ($(number triggers_other_many 1) / $(number triggers_other_few 1) us)" '<= 1.2' "$(verdict "$r <= 1.2")"
    row '  an event that nobody wants: rows written beside it' "$(value triggers_unwanted_rows)  ($(number triggers_unwanted 1) us)" '0' "$(verdict "$(value triggers_unwanted_rows) == 0")"
fi
if have triggers_same_topic triggers_one_filter; then
    share=$(awk "BEGIN { printf \"%.0f\", 100 * (1 - $(value triggers_other_few) / $(value triggers_same_topic)) }")
    row "$(number triggers_many) automations on one topic, each with a filter of its own" "$(awk "BEGIN { printf \"%.0f\", 1e6 / $(value triggers_same_topic) }") events/s of the conductor  ($(number triggers_same_topic 0) us, $share % of it matching; $(number triggers_one_filter 1) us with one)" '' ''
fi
if have triggers_window_few triggers_window_many; then
    r=$(ratio triggers_window_many triggers_window_few)
    row "a window counts one more of $(number triggers_occurrences) occurrences / of few" "$r  ($(number triggers_window_many 1) / $(number triggers_window_few 1) us)" '<= 1.5' "$(verdict "$r <= 1.5")"
fi

[ ${#rows[@]} -gt 0 ] || { echo "error: no results in $results" >&2 && exit 1; }
{
    echo 'what|measured|bar|met'
    echo '---|---|---|---'
    printf '%s\n' "${rows[@]}"
} | awk -F '|' '
    { for (i = 1; i <= 4; i++) { cell[NR, i] = $i; if (length($i) > width[i]) width[i] = length($i) } }
    END {
        for (n = 1; n <= NR; n++) {
            line = "|"
            for (i = 1; i <= 4; i++) {
                text = cell[n, i]
                while (length(text) < width[i]) text = text (n == 2 ? "-" : " ")
                line = line " " text " |"
            }
            print line
        }
    }'
