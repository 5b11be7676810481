# Sourced by measure.sh: runs that suspend. Sections: steps waits.
# shellcheck shell=bash disable=SC2154 # rounds, backlog and the tools come from measure.sh

# ---- 7. several steps in one walk ----------------------------------------------------------------

define_steps() { # NAME STEPS
    sql "SELECT automation.watch_table('bench.orders', kind => 'order')" \
        "SELECT automation.define('effect', run_as => 'bench', trigger => automation.on_created('order'), steps => ARRAY[$1])" >/dev/null
}

measure_steps() {
    # shellcheck disable=SC2034 # drain sets all of them
    local how round rate first cpu wal dead executors steps
    local effect="automation.sql('INSERT INTO bench.effect (order_id, at) VALUES ({{ new.id }}, clock_timestamp())')"
    local look="automation.sql('SELECT {{ new.total }} AS total')"
    local -A programs=(
        [one]="$effect"
        [five]="$look, automation.set('{\"n\": 1}'), automation.require('new.id > 0'), automation.branch('new.id < 0'), $effect"
        [five_sql]="$look, $look, $look, $look, $effect"
    )
    local -A seen=()
    section "backlog of $backlog events: runs of one step and of five in one walk"
    for ((round = 1; round <= rounds; round++)); do
        for how in one five five_sql; do
            fresh steps
            define_steps "${programs[$how]}"
            stop_workers
            fill_at_once
            elsewhere CHECKPOINT
            drain
            note "steps_${how}_$round" "$rate"
            seen[steps_$how]+=" $rate" seen[steps_${how}_cpu]+=" $cpu"
            discard
        done
    done
    for steps in "${!seen[@]}"; do note "$steps" "$(median "${seen[$steps]}")"; done
}

# ---- 8. runs that wait -----------------------------------------------------------------------------

wait_for_count() { # SQL giving a number, wanted
    local deadline=$((SECONDS + 900)) seen
    until seen=$(sql "$1") && [ "$seen" -ge "$2" ]; do
        [ $SECONDS -lt $deadline ] || { echo "error: $seen of $2: $1" >&2 && exit 1; }
        sleep 0.2
    done
}
waiting="SELECT count(*) FROM automation_internal.run"

# Microseconds of the conductor per event that concerns nobody who waits.
routing_cost() { # EVENTS
    local before cpu
    before=$(events_routed)
    cpu=$(conductor_cpu)
    sql "UPDATE bench.other SET n = n + 1 WHERE id <= $1"
    until [ $(($(events_routed) - before)) -ge "$1" ]; do sleep 0.1; done
    compute "($(conductor_cpu) - $cpu) / $1"
}

# Runs per second that wait ten milliseconds for their timer.
timer_rate() { # RUNS
    local start
    sql 'TRUNCATE bench.effect'
    start=$EPOCHREALTIME
    sql "SELECT count(automation.start_run('pause')) FROM generate_series(1, $1)" >/dev/null
    wait_for_count 'SELECT count(*) FROM bench.effect' "$1"
    compute "$1 / ($EPOCHREALTIME - $start)"
}

workers_memory() { sql "SELECT round(sum(bench.private_kb(pid)) / 1024.0, 1) FROM automation.stat_workers WHERE pid IS NOT NULL"; }

measure_waits() {
    local start few=1000 count before seconds timers=5000 events=20000
    section "$many_waits runs that wait"
    fresh waits
    wait_for_conductor
    sql "CREATE TABLE bench.other (LIKE bench.orders INCLUDING ALL)" "CALL bench.load('bench.other', $events)" \
        "SELECT automation.watch_table('bench.orders', kind => 'order'), automation.watch_table('bench.other')" \
        "SELECT automation.define('wait', run_as => 'bench', trigger => automation.on_created('order'), steps => ARRAY[
            automation.wait_until('state.order[new.id].status = ''paid''', timeout => '30 days'),
            automation.sql('INSERT INTO bench.effect (order_id, at) VALUES ({{ new.id }}, clock_timestamp())')])" \
        "SELECT automation.define('pause', run_as => 'bench', trigger => automation.on_call(), steps => ARRAY[
            automation.delay('10 milliseconds'),
            automation.sql('INSERT INTO bench.effect (order_id, at) VALUES (0, clock_timestamp())')])" >/dev/null
    backlog=$few fill_at_once
    wait_for_count "$waiting" "$few"
    routing_cost "$events" >/dev/null # warm
    note waits_routing_few "$(routing_cost "$events")"
    timer_rate "$timers" >/dev/null
    note waits_timer_rate_few "$(timer_rate "$timers")"
    note waits_memory_few "$(workers_memory)"
    # suspend
    start=$EPOCHREALTIME
    sql "INSERT INTO bench.orders SELECT i, 'new', 10.25, 'a note of ordinary length for an order', now(), 0 FROM generate_series($few + 1, $many_waits) AS i"
    wait_for_count "$waiting" "$many_waits"
    note waits_suspended_per_second "$(compute "($many_waits - $few) / ($EPOCHREALTIME - $start)")"
    note waits_many "$many_waits"
    sql 'VACUUM ANALYZE'
    elsewhere CHECKPOINT
    routing_cost "$events" >/dev/null
    note waits_routing_many "$(routing_cost "$events")"
    note waits_timer_rate_many "$(timer_rate "$timers")"
    note waits_memory_many "$(workers_memory)"
    # idle: executors leave first
    elsewhere 'ALTER SYSTEM SET autovacuum = off' 'SELECT pg_reload_conf()' >/dev/null
    sleep 75
    count="SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = '$database'"
    before=$(elsewhere "$count")
    sleep "$idle_seconds"
    note waits_idle_transactions "$(($(elsewhere "$count") - before))"
    note idle_seconds "$idle_seconds"
    elsewhere 'ALTER SYSTEM RESET autovacuum' 'SELECT pg_reload_conf()' >/dev/null
    # wake
    sql 'TRUNCATE bench.effect'
    seconds=$EPOCHREALTIME
    sql "UPDATE bench.orders SET status = 'paid' WHERE id <= $woken"
    wait_for_count 'SELECT count(*) FROM bench.effect' "$woken"
    note waits_woken_per_second "$(compute "$woken / ($EPOCHREALTIME - $seconds)")"
    discard
}
