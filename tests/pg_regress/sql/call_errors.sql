-- A step that calls a procedure keeps all that the procedure's error says: the SQLSTATE of its own and the context.
CREATE ROLE regress_call_errors LOGIN;
CREATE PROCEDURE regress_short_of_stock(item text) LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'no % left', item USING ERRCODE = 'SH001', DETAIL = 'The shelf is empty.', HINT = 'Order more.';
END $$;
SELECT name, status FROM automation.define('regress-call-errors', run_as => 'regress_call_errors', trigger => automation.on_call(),
    steps => ARRAY[automation.sql($$ CALL regress_short_of_stock({{ payload.item }}) $$)]);
SELECT automation.start_run('regress-call-errors', '{"item": "tea"}') > 0 AS started;
SELECT automation.drain() > 0 AS drained;
SELECT status, sqlstate, message, detail, hint, context FROM automation.runs WHERE automation = 'regress-call-errors' \gx
SELECT automation.drop_automation('regress-call-errors');
DROP PROCEDURE regress_short_of_stock;
DROP ROLE regress_call_errors;
