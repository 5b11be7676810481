-- subscribe and unsubscribe: who, to what, and what is no pattern or channel. What is told is for the end-to-end tests.
\set SHOW_CONTEXT never
SELECT automation.subscribe('orders.*', 'feed') AS new, automation.subscribe('orders.*', 'feed') AS again;
SELECT automation.subscribe('graph.node.created.*', 'feed') AS new;
SELECT pattern, channel, role = current_user AS mine FROM automation.subscriptions;
SELECT automation.unsubscribe('orders.*', 'feed') AS was, automation.unsubscribe('orders.*', 'feed') AS again;
SELECT automation.unsubscribe('graph.node.created.*', 'feed') AS was;
SELECT count(*) FROM automation.subscriptions;
-- mistakes
SELECT automation.subscribe('', 'feed');
SELECT automation.subscribe('orders..paid', 'feed');
SELECT automation.subscribe('orders.*', '');
SELECT automation.subscribe('orders.*', repeat('x', 64));
SELECT automation.subscribe(NULL, 'feed') IS NULL AS nothing;
-- of a role that is gone nothing is left
CREATE ROLE regress_sub LOGIN;
SELECT automation.grant_usage('regress_sub', 'author');
SET ROLE regress_sub;
SELECT automation.subscribe('#', 'feed') AS new;
RESET ROLE;
SELECT automation.revoke_usage('regress_sub');
DROP ROLE regress_sub;
SELECT automation.sweep() >= 0 AS swept;
SELECT count(*) FROM automation_internal.subscription;
