#!/usr/bin/env bash
# measure.sh FILE [SECTION]...: measures the server that PGHOST, PGPORT and PGUSER name (a superuser) with the psql and
# pgbench on PATH, and appends "key value" lines to FILE. Each section works in databases of its own, dropped afterwards.
#
# Sections: update bulk drain writer latency idle snapshot steps waits triggers. Without any, all of them.
# BENCH_QUICK=1: one round of each instead of three, and shorter ones.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
results=${1:?where to?}
shift
sections=${*:-update bulk drain writer latency idle snapshot steps waits triggers}

if [ "${BENCH_QUICK:-0}" = 1 ]; then
    rounds=1 update_seconds=5 bulk_rows=200000 backlog=20000 latency_seconds=5 idle_seconds=20 many_waits=50000 woken=10000
    many_automations=1000 many_occurrences=100000 routed_events=50000 held_seconds=5
else
    rounds=3 update_seconds=15 bulk_rows=1000000 backlog=100000 latency_seconds=20 idle_seconds=60 many_waits=1000000 woken=100000
    many_automations=10000 many_occurrences=1000000 routed_events=200000 held_seconds=20
fi
readonly table_rows=100000
export PGOPTIONS='-c client_min_messages=warning'

# ---- tools ----------------------------------------------------------------------------------

section() { printf '==> %s (load %s)\n' "$*" "$(cut -d ' ' -f 1-3 /proc/loadavg)"; }
note() { # KEY VALUE
    echo "$1 $2" >>"$results"
    printf '    %-34s %s\n' "$1" "$2"
}

# SQL from arguments or standard input, in the current database or elsewhere. Values come without decoration.
database=postgres
sql() { psql -X -q -A -t -v ON_ERROR_STOP=1 -d "$database" "${@/#/-c}"; }
elsewhere() { psql -X -q -A -t -v ON_ERROR_STOP=1 -d postgres "${@/#/-c}"; }
bench() { pgbench -n -M prepared "$@" "$database"; }
update_of() { printf '%s\n' "\set id random(1, $table_rows)" "UPDATE bench.$1 SET status = 'paid', n = n + 1, updated = now() WHERE id = :id;"; }

compute() { awk "BEGIN { printf \"%.6g\", $1 }"; }
median() { tr ' ' '\n' <<<"$*" | sort -g | awk 'NF { v[++n] = $1 } END { printf "%.6g", n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2 }'; }

# A database with the extension and the schema, and no write of an earlier measurement still on its way to disk.
fresh() {
    database=bench_$1
    elsewhere "DROP DATABASE IF EXISTS $database WITH (FORCE)" "CREATE DATABASE $database"
    sql <"$here/schema.sql"
    elsewhere CHECKPOINT
}
discard() {
    elsewhere "DROP DATABASE $database WITH (FORCE)"
    database=postgres
}

wait_until() { # WHAT SQL: until the statement, run elsewhere, says t
    local deadline=$((SECONDS + 120))
    until [ "$(elsewhere "$2")" = t ]; do
        [ $SECONDS -lt $deadline ] || { echo "error: gave up waiting: $1" >&2 && exit 1; }
        sleep 0.1
    done
}
workers_of() { echo "SELECT pid FROM pg_stat_activity WHERE datname = '$database' AND backend_type IN ('automation_engine conductor', 'automation_engine executor')"; }
stop_workers() {
    sql 'SELECT automation.stop_workers()' >/dev/null
    wait_until 'workers stop' "SELECT NOT EXISTS ($(workers_of))"
}
wait_for_conductor() { wait_until 'conductor starts' "SELECT EXISTS ($(workers_of) AND backend_type = 'automation_engine conductor')"; }

# Until the conductor has nothing left to route.
events_routed() { sql "SELECT events FROM automation.stat_workers WHERE worker = 'conductor'"; }
wait_until_routed() {
    local before now
    now=$(events_routed)
    while sleep 1; do
        before=$now
        now=$(events_routed)
        [ "$now" != "$before" ] || break
    done
}

define_effect() {
    sql "SELECT automation.watch_table('bench.orders', kind => 'order')" \
        "SELECT automation.define('effect', run_as => 'bench', trigger => automation.on_created('order'), steps => ARRAY[
            automation.sql('INSERT INTO bench.effect (order_id, at) VALUES ({{ new.id }}, clock_timestamp())')])" >/dev/null
}

# ---- 1. one-row UPDATE ------------------------------------------------------------------------

# Eight clients of each table are connected all the time and may work in turn, a third of a second each: what a disk or a
# neighbour does to the rate for longer than that, it does to both.
declare -A writer=()
start_writer() { # TABLE
    # pgbench itself, not a shell around it: it is to be stopped
    PGAPPNAME=bench_$1 pgbench -n -M prepared -c 8 -j 2 -T 3600 -f <(update_of "$1") "$database" >/dev/null 2>&1 &
    writer[$1]=$!
    sleep 2
    kill -STOP "${writer[$1]}"
}
end_writers() {
    local pid
    for pid in "${writer[@]}"; do
        kill -TERM "$pid" && kill -CONT "$pid"
        wait "$pid" || true
    done
    writer=()
}
trap end_writers EXIT # who is stopped would stay so
updates_of() { sql "SELECT sum(n) FROM bench.$1"; }
writers_cpu() { sql "SELECT sum(bench.cpu_us(pid)) FROM pg_stat_activity WHERE application_name = 'bench_$1'"; }

measure_update() {
    local round table begun updates tps slice conductor key
    local -A seen=() before=() cpu=() active=()
    section "one-row UPDATE, 8 clients, $update_seconds s, bare and captured in turn"
    fresh update
    wait_for_conductor
    for table in bare captured; do
        sql "CREATE TABLE bench.$table (LIKE bench.orders INCLUDING ALL) WITH (fillfactor = 90)" \
            "CALL bench.load('bench.$table', $table_rows)" "VACUUM ANALYZE bench.$table"
    done
    sql "SELECT automation.watch_table('bench.captured')" >/dev/null
    for ((round = 1; round <= rounds; round++)); do
        elsewhere CHECKPOINT
        for table in bare captured; do
            start_writer $table
            before[$table]=$(updates_of $table) cpu[$table]=$(writers_cpu $table) active[$table]=0
        done
        wait_until_routed
        conductor=$(conductor_cpu)
        for ((slice = 0; slice < update_seconds * 3; slice++)); do
            for table in bare captured; do
                begun=$(date +%s%N)
                kill -CONT "${writer[$table]}"
                sleep 0.33
                kill -STOP "${writer[$table]}"
                active[$table]=$((active[$table] + $(date +%s%N) - begun))
                # The last ones are still on their way, and the conductor behind them.
                sleep 0.03
            done
        done
        conductor=$(($(conductor_cpu) - conductor))
        for table in bare captured; do
            updates=$(($(updates_of $table) - before[$table]))
            tps=$(compute "$updates / ${active[$table]} * 1e9")
            note "update_${table}_$round" "$tps"
            seen[update_${table}_tps]+=" $tps"
            seen[update_${table}_cpu]+=" $(compute "($(writers_cpu $table) - ${cpu[$table]}) / $updates")"
        done
        # Nobody else gave it anything to do.
        seen[update_captured_conductor]+=" $(compute "$conductor / $updates")"
        seen[update_ratio]+=" $(compute "${seen[update_captured_tps]##* } / ${seen[update_bare_tps]##* }")"
        end_writers
        wait_until_routed
    done
    for key in "${!seen[@]}"; do note "$key" "$(median "${seen[$key]}")"; done
    discard
}
workers_cpu() { sql 'SELECT sum(bench.cpu_us(pid)) FROM automation.stat_workers WHERE pid IS NOT NULL'; }
conductor_cpu() { sql "SELECT bench.cpu_us(pid) FROM automation.stat_workers WHERE worker = 'conductor'"; }

# ---- 2. UPDATE of very many rows ----------------------------------------------------------------

# Prints the largest private memory (kB) the process ever shows.
watch_memory() { # PID
    local now peak=0
    while now=$(awk '/^RssAnon/ { print $2 }' "/proc/$1/status" 2>/dev/null) && [ -n "$now" ]; do
        if [ "$now" -gt "$peak" ]; then
            peak=$now
            echo "$peak" >"$memory_file"
        fi
        sleep 0.05
    done
}

# One UPDATE of all rows of 'big'; sets seconds, cpu (microseconds per row) and peak_kb.
bulk_update() {
    local backend
    memory_file=$(mktemp)
    coproc session { psql -X -q -A -t -v ON_ERROR_STOP=1 -d "$database"; }
    # shellcheck disable=SC2154 # set by coproc
    local input=${session[1]} output=${session[0]} pid=$session_PID
    echo 'SELECT pg_backend_pid();' >&"$input"
    read -r backend <&"$output"
    watch_memory "$backend" &
    local watcher=$!
    local start=$EPOCHREALTIME
    printf '%s\n' "UPDATE bench.big SET status = 'paid', n = n + 1;" "SELECT 'done';" >&"$input"
    read -r _ <&"$output"
    seconds=$(compute "$EPOCHREALTIME - $start")
    # shellcheck disable=SC2178 # cpu is an array in other functions only
    cpu=$(sql "SELECT round(bench.cpu_us($backend) / $bulk_rows.0, 2)")
    exec {input}>&-
    wait "$pid" "$watcher" || true
    peak_kb=$(cat "$memory_file")
    rm -f "$memory_file"
}

measure_bulk() {
    local bare=() captured=() bare_cpu=() captured_cpu=() peaks=() routed=() round kind seconds cpu peak_kb start events
    section "UPDATE of $bulk_rows rows, bare and captured in turn"
    for ((round = 1; round <= rounds; round++)); do
        for kind in bare captured; do
            fresh bulk
            wait_for_conductor
            sql "CREATE TABLE bench.big (LIKE bench.orders INCLUDING ALL)" "CALL bench.load('bench.big', $bulk_rows)"
            sql "VACUUM ANALYZE bench.big"
            if [ $kind = captured ]; then sql "SELECT automation.watch_table('bench.big')" >/dev/null; fi
            elsewhere CHECKPOINT
            events=$(events_routed)
            bulk_update
            note "bulk_${kind}_seconds_$round" "$seconds"
            if [ $kind = bare ]; then
                bare+=("$seconds") bare_cpu+=("$cpu")
            else
                captured+=("$seconds") captured_cpu+=("$cpu") peaks+=("$(compute "$peak_kb / 1024")")
                start=$EPOCHREALTIME
                until [ $(($(events_routed) - events)) -ge "$bulk_rows" ]; do sleep 0.2; done
                routed+=("$(compute "$bulk_rows / ($EPOCHREALTIME - $start)")")
            fi
            discard
        done
    done
    note bulk_rows "$bulk_rows"
    note bulk_bare_seconds "$(median "${bare[@]}")"
    note bulk_captured_seconds "$(median "${captured[@]}")"
    note bulk_bare_cpu "$(median "${bare_cpu[@]}")"
    note bulk_captured_cpu "$(median "${captured_cpu[@]}")"
    note bulk_peak_mb "$(printf '%s\n' "${peaks[@]}" | sort -g | tail -n 1)"
    note bulk_routed_per_second "$(median "${routed[@]}")"
}

# ---- 3. the backlog, and its floor ------------------------------------------------------------------

# Sets rate and cpu (microseconds per row) of the plain SQL loop in that many sessions at once.
floor() { # SESSIONS
    local start i pids=() times
    times=$(mktemp)
    fresh floor
    stop_workers
    sql "CALL bench.floor_fill($backlog)" 'VACUUM ANALYZE bench.floor_queue'
    elsewhere CHECKPOINT
    start=$EPOCHREALTIME
    for ((i = 0; i < $1; i++)); do
        sql 'CALL bench.floor_work(100)' >>"$times" &
        pids+=($!)
    done
    wait "${pids[@]}"
    rate=$(compute "$backlog / ($EPOCHREALTIME - $start)")
    cpu=$(awk -v n="$backlog" '{ sum += $1 } END { printf "%.1f", sum / n }' "$times")
    rm -f "$times"
    [ "$(sql 'SELECT count(*) FROM bench.effect')" = "$backlog" ] || { echo 'error: the floor lost rows' >&2 && exit 1; }
    discard
}

# Starts the workers and waits for all effects. Sets rate, first (seconds to the first effect) and, per run, cpu
# (microseconds), wal (bytes) and dead (rows of the engine updated or deleted).
drain() {
    local lsn start deleted
    deleted=$(dead_rows)
    lsn=$(elsewhere 'SELECT pg_current_wal_insert_lsn()')
    start=$(sql "SELECT extract(epoch FROM clock_timestamp()) FROM automation.start_workers()")
    sql "CALL bench.wait_for_effects($backlog)"
    wal=$(elsewhere "SELECT round((pg_current_wal_insert_lsn() - '$lsn') / $backlog)")
    cpu=$(sql "SELECT round(sum(bench.cpu_us(pid)) / $backlog, 1) FROM automation.stat_workers WHERE pid IS NOT NULL")
    executors=$(sql "SELECT count(*) FROM automation.stat_workers WHERE worker = 'executor' AND pid IS NOT NULL")
    read -r rate first < <(sql "SELECT round($backlog / (extract(epoch FROM max(at)) - $start)) || ' ' ||
                                       round(extract(epoch FROM min(at)) - $start, 3) FROM bench.effect")
    stop_workers # they report the last of their counters when they end
    dead=$(compute "($(dead_rows) - $deleted) / $backlog")
}
dead_rows() { sql "SELECT coalesce(sum(n_tup_del + n_tup_upd), 0) FROM pg_stat_all_tables WHERE schemaname = 'automation_internal'"; }

fill_at_once() { sql "INSERT INTO bench.orders SELECT o.last + i, 'new', 10.25, 'a note of ordinary length for an order', now(), 0 FROM (SELECT coalesce(max(id), 0) AS last FROM bench.orders) AS o, generate_series(1, $backlog) AS i"; }
fill_one_by_one() { insert_one_by_one -t $((backlog / 8)); }
insert_one_by_one() { # OPTION...
    sql 'CREATE SEQUENCE bench.order_id'
    bench -c 8 -j 2 "$@" \
        -f <(echo "INSERT INTO bench.orders VALUES (nextval('bench.order_id'), 'new', 10.25, 'a note of ordinary length for an order', now(), 0);") >/dev/null
}

measure_drain() {
    local how round sessions rate first cpu wal dead executors
    local -A seen=()
    section "backlog of $backlog events drained alone, and the floor, in turn"
    for ((round = 1; round <= rounds; round++)); do
        for sessions in 1 2; do
            floor $sessions
            note "floor_${sessions}_$round" "$rate"
            seen[floor_$sessions]+=" $rate" seen[floor_${sessions}_cpu]+=" $cpu"
        done
        for how in one_by_one at_once; do
            fresh drain
            define_effect
            stop_workers
            "fill_$how"
            elsewhere CHECKPOINT
            drain
            note "drain_${how}_$round" "$rate"
            seen[drain_$how]+=" $rate" seen[drain_${how}_first_effect]+=" $first" seen[drain_${how}_cpu]+=" $cpu"
            seen[drain_${how}_wal]+=" $wal" seen[drain_${how}_dead]+=" $dead" seen[drain_${how}_executors]+=" $executors"
            discard
        done
    done
    for how in "${!seen[@]}"; do note "$how" "$(median "${seen[$how]}")"; done
    # the ratio is to the best the one-session loop has shown
    note floor_best "$(tr ' ' '\n' <<<"${seen[floor_1]}" | sort -g | tail -n 1)"
}

measure_writer() {
    local round rate first cpu wal dead executors writer log rates=() writes=()
    section "the same beside a writer with 20 clients on another watched table"
    log=$(mktemp)
    for ((round = 1; round <= rounds; round++)); do
        fresh writer
        define_effect
        sql "CREATE TABLE bench.other (LIKE bench.orders INCLUDING ALL) WITH (fillfactor = 90)" \
            "CALL bench.load('bench.other', $table_rows)" "VACUUM ANALYZE bench.other" \
            "SELECT automation.watch_table('bench.other')" >/dev/null
        stop_workers
        fill_at_once
        elsewhere CHECKPOINT
        bench -c 20 -j 2 -T 600 -P 1 -f <(update_of other) >/dev/null 2>"$log" &
        writer=$!
        sleep 2.5
        : >"$log"
        drain
        writes+=("$(awk '/^progress/ { sum += $4; n++ } END { printf "%.0f", n ? sum / n : 0 }' "$log")")
        kill "$writer"
        wait "$writer" 2>/dev/null || true
        note "drain_beside_writer_$round" "$rate"
        note "writer_tps_$round" "${writes[-1]}"
        rates+=("$rate")
        discard
    done
    rm -f "$log"
    note drain_beside_writer "$(median "${rates[@]}")"
    note writer_tps "$(median "${writes[@]}")"
}

# ---- 4. latency --------------------------------------------------------------------------------------

percentiles() { # KEY, then SQL giving seconds in a column named s
    local p50 p99 max
    read -r p50 p99 max < <(sql "SELECT concat_ws(' ', round(1000 * percentile_cont(0.5) WITHIN GROUP (ORDER BY s)::numeric, 2),
        round(1000 * percentile_cont(0.99) WITHIN GROUP (ORDER BY s)::numeric, 2), round(1000 * max(s)::numeric, 2)) FROM ($2) AS l")
    note "$1_p50" "$p50"
    note "$1_p99" "$p99"
    note "$1_max" "$max"
}

# What the watching session does: it looks five times a millisecond. (A sleep in the server rounds up to a whole one, and
# looking without a pause takes the processor from the engine.)
look() {
    cat <<'SQL'
\sleep 200 us
INSERT INTO bench.seen
SELECT e.ticket_id, clock_timestamp() FROM bench.ticket_effect AS e
 WHERE e.ticket_id > (SELECT coalesce(max(s.ticket_id), 0) - 20 FROM bench.seen AS s)
   AND NOT EXISTS (SELECT FROM bench.seen AS s WHERE s.ticket_id = e.ticket_id);
SQL
}
write_tickets() { # SECONDS
    bench -c 1 -T "$1" --rate=50 -f <(echo "INSERT INTO bench.ticket VALUES (nextval('bench.ticket_id'), clock_timestamp());") >/dev/null
}

measure_latency() {
    local watcher
    section "latency at 50 changes a second, $latency_seconds s"
    fresh latency
    wait_for_conductor
    # what one commit costs here, without the engine
    sql 'CREATE TABLE bench.unwatched (at timestamptz)'
    note latency_bare_commit "$(bench -c 1 -T 3 -f <(echo 'INSERT INTO bench.unwatched VALUES (now());') | sed -n 's/^latency average = \([0-9.]*\) ms/\1/p')"
    sql "SELECT automation.watch_table('bench.ticket')" \
        "SELECT automation.define('ticket', run_as => 'bench', trigger => automation.on_created('ticket'), steps => ARRAY[
            automation.sql('INSERT INTO bench.ticket_effect VALUES ({{ new.id }}, clock_timestamp())')])" >/dev/null
    # the first run starts an executor; what is measured is an engine at work
    write_tickets 2
    sql 'DELETE FROM bench.ticket' 'VACUUM ANALYZE bench.ticket, bench.ticket_effect'
    PGOPTIONS="$PGOPTIONS -c synchronous_commit=off" bench -c 1 -T $((latency_seconds + 2)) -f <(look) >/dev/null &
    watcher=$!
    sleep 1
    write_tickets "$latency_seconds"
    wait "$watcher"
    percentiles latency_visible 'SELECT extract(epoch FROM s.at - t.made) AS s FROM bench.ticket AS t JOIN bench.seen AS s ON s.ticket_id = t.id'
    # both by the clock at which their commits were recorded, so that nobody has to look
    percentiles latency_committed 'SELECT extract(epoch FROM pg_xact_commit_timestamp(e.xmin) - pg_xact_commit_timestamp(t.xmin)) AS s
        FROM bench.ticket AS t JOIN bench.ticket_effect AS e ON e.ticket_id = t.id'
    percentiles latency_step 'SELECT extract(epoch FROM e.at - t.made) AS s FROM bench.ticket AS t JOIN bench.ticket_effect AS e ON e.ticket_id = t.id'
    percentiles latency_history "SELECT extract(epoch FROM h.ended_at - t.made) AS s FROM bench.ticket AS t
        JOIN automation_internal.run_history AS h ON h.kind = 'ticket' AND h.entity_id = t.id::text"
    discard
}

# ---- 5. idle -------------------------------------------------------------------------------------------

measure_idle() {
    local count before i
    section "10 automations and nothing to do, $idle_seconds s"
    fresh idle
    define_effect
    for i in 2 3 4 5 6 7 8 9 10; do
        sql "SELECT automation.define('effect$i', run_as => 'bench', trigger => automation.on_created('order'), steps => ARRAY[
            automation.sql('INSERT INTO bench.effect (order_id, at) VALUES ({{ new.id }}, clock_timestamp())')])" >/dev/null
    done
    # A little work, so that executors are there, and they leave while it is measured.
    # Autovacuum's transactions would count as those of this database.
    elsewhere 'ALTER SYSTEM SET autovacuum = off' "ALTER SYSTEM SET automation_engine.executor_idle_timeout = '12s'" \
        'SELECT pg_reload_conf()' >/dev/null
    backlog=1000 fill_at_once
    sql 'CALL bench.wait_for_effects(10000)'
    sleep 5
    count="SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = '$database'"
    before=$(elsewhere "$count")
    sleep "$idle_seconds"
    note idle_transactions "$(($(elsewhere "$count") - before))"
    note idle_seconds "$idle_seconds"
    elsewhere 'ALTER SYSTEM RESET autovacuum' 'ALTER SYSTEM RESET automation_engine.executor_idle_timeout' \
        'SELECT pg_reload_conf()' >/dev/null
    discard
}

# ---- 6. a held snapshot --------------------------------------------------------------------------------

# Runs in plenty leave dead rows behind, which nobody may remove while the snapshot is held; then a backlog is drained.
measure_snapshot() {
    local round kind holder rate first cpu wal dead executors
    local -A seen=()
    section "backlog of $backlog events after $held_seconds s of load, without and with a held snapshot in turn"
    for ((round = 1; round <= rounds; round++)); do
        for kind in free held; do
            fresh snapshot
            define_effect
            wait_for_conductor
            if [ $kind = held ]; then
                PGAPPNAME=holder sql 'BEGIN ISOLATION LEVEL REPEATABLE READ' 'SELECT count(*) FROM pg_class' 'SELECT pg_sleep(3600)' >/dev/null 2>&1 &
                holder=$!
                wait_until 'snapshot is held' "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'holder' AND query ~ 'pg_sleep' AND state = 'active')"
            fi
            insert_one_by_one -T "$held_seconds"
            sql "CALL bench.wait_for_effects($(sql "SELECT count(*) FROM bench.orders"))"
            stop_workers
            sql 'TRUNCATE bench.effect'
            fill_at_once
            elsewhere CHECKPOINT
            drain
            note "drain_${kind}_snapshot_$round" "$rate"
            seen[drain_${kind}_snapshot]+=" $rate" seen[drain_${kind}_snapshot_cpu]+=" $cpu"
            if [ $kind = held ]; then
                elsewhere "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'holder'" >/dev/null
                wait "$holder" || true
            fi
            discard
        done
    done
    for kind in "${!seen[@]}"; do note "$kind" "$(median "${seen[$kind]}")"; done
    note held_seconds "$held_seconds"
}

# shellcheck source-path=SCRIPTDIR
source "$here/waits.sh"
# shellcheck source-path=SCRIPTDIR
source "$here/triggers.sh"

for each in $sections; do "measure_$each"; done
