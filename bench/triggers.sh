# Sourced by measure.sh: what it costs to find out what an event starts. Section: triggers.
# shellcheck shell=bash disable=SC2154 # the sizes and the tools come from measure.sh

# ---- 9. many automations, many windows, events that nobody wants -----------------------------------

# Automations NAME1 ... NAMEn on the topic, and with the filter, that SQL expressions over i give.
define_many() { # NAME COUNT TOPIC FILTER
    sql "SELECT count(d.*) FROM generate_series(1, $2) AS i, automation.define('$1' || i, run_as => 'bench',
             trigger => automation.on_event($3, filter => $4), steps => ARRAY[automation.sql('SELECT 1')]) AS d" >/dev/null
}

drop_many() { sql "SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE '$1%'" >/dev/null; }

# Microseconds of the conductor per row that an INSERT of so many orders adds to the log, all of it routed.
insert_cost() { # EVENTS
    local before cpu
    before=$(events_routed)
    cpu=$(conductor_cpu)
    sql "INSERT INTO bench.orders SELECT i, 'new', 10.25, 'a note', now(), 0 FROM (SELECT coalesce(max(id), 0) AS last FROM bench.orders) AS o, generate_series(o.last + 1, o.last + $1) AS i"
    until [ $(($(events_routed) - before)) -ge "$1" ]; do sleep 0.05; done
    compute "($(conductor_cpu) - $cpu) / $1"
}

# The least of so many, because what disturbs a measurement of a microsecond only ever adds to it.
least() { # TIMES COMMAND...
    local round
    for ((round = 1; round <= $1; round++)); do "${@:2}" && echo; done | sort -g | sed -n '/./{p;q}'
}

# Microseconds of all workers per occurrence that a window counts and does not let pass.
window_cost() { # EVENTS
    local before cpu
    before=$(sql 'SELECT coalesce(sum(count), 0) FROM automation.stat_gates')
    cpu=$(workers_cpu)
    sql "INSERT INTO bench.orders SELECT i, 'new', 10.25, 'a note', now(), 0 FROM (SELECT coalesce(max(id), 0) AS last FROM bench.orders) AS o, generate_series(o.last + 1, o.last + $1) AS i"
    wait_for_count 'SELECT coalesce(sum(count), 0) FROM automation.stat_gates' $((before + $1))
    compute "($(workers_cpu) - $cpu) / $1"
}

measure_triggers() {
    local many=$many_automations events=$routed_events rows
    section "$many automations"
    fresh triggers
    wait_for_conductor
    sql "SELECT automation.watch_table('bench.orders', kind => 'order')" >/dev/null
    # on other topics
    define_many other 10 "'other.' || i" 'NULL'
    insert_cost "$events" >/dev/null # warm
    note triggers_other_few "$(least 5 insert_cost "$events")"
    define_many another $((many - 10)) "'another.' || i" 'NULL'
    insert_cost 1000 >/dev/null # reads them
    note triggers_other_many "$(least 5 insert_cost "$events")"
    note triggers_many "$many"
    # events that nobody wants leave nothing behind but themselves
    rows="SELECT sum(n_tup_ins) FROM pg_stat_all_tables WHERE schemaname = 'automation_internal' AND relname NOT LIKE 'event%'"
    sleep 2
    local before
    before=$(sql "$rows")
    note triggers_unwanted "$(insert_cost "$events")"
    sleep 2
    note triggers_unwanted_rows "$(($(sql "$rows") - before))"
    drop_many other
    drop_many another
    # on the same topic, each with a filter of its own that does not hold
    define_many same "$many" "'order.created'" "'new.id = -' || i"
    insert_cost 10 >/dev/null
    note triggers_same_topic "$(insert_cost 1000)"
    define_many never 1 "'order.created'" "'new.id = -1'"
    drop_many same
    insert_cost 1000 >/dev/null
    note triggers_one_filter "$(insert_cost "$events")"
    drop_many never
    # windows
    sql "SELECT automation.define('window', run_as => 'bench', trigger => automation.on_created('order', window_count => 1000,
             window_within => '1 hour', window_per => 'new.id % 100000'), steps => ARRAY[automation.sql('SELECT 1')])" >/dev/null
    window_cost "$events" >/dev/null
    note triggers_window_few "$(least 2 window_cost "$events")"
    # as many more as make the number, over the same partitions
    sql "INSERT INTO automation_internal.window_event
         SELECT w.automation_id, w.trigger, 'per ' || i % 100000, w.at - i * interval '1 microsecond', -i, w.keep_until
           FROM generate_series(1, $many_occurrences) AS i,
                (SELECT automation_id, trigger, max(at) AS at, max(keep_until) AS keep_until
                   FROM automation_internal.window_event GROUP BY 1, 2) AS w" 'VACUUM ANALYZE automation_internal.window_event'
    window_cost "$events" >/dev/null
    note triggers_window_many "$(least 2 window_cost "$events")"
    note triggers_occurrences "$many_occurrences"
    discard
}
