-- After all other tests (by its name): every index of ours knows every row of its table.
SET client_min_messages = warning;
CREATE EXTENSION amcheck;
SELECT count(*) > 20 AS checked, count(bt_index_check(c.oid, true)) = count(*) AS sound
  FROM pg_class AS c
 WHERE c.relnamespace = 'automation_internal'::regnamespace AND c.relkind = 'i'
   AND c.relam = (SELECT oid FROM pg_am WHERE amname = 'btree');
DROP EXTENSION amcheck;
