-- A partition that leaves a watched table is not captured any more: status() says so until it is dropped or watched.
CREATE TABLE regress_dp (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE regress_dp_1 PARTITION OF regress_dp FOR VALUES FROM (0) TO (10);
SELECT automation.watch_table('regress_dp');
-- one that was there when the table was watched, and one that housekeeping has seen later
CREATE TABLE regress_dp_2 PARTITION OF regress_dp FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (id);
CREATE TABLE regress_dp_2_1 PARTITION OF regress_dp_2 FOR VALUES FROM (10) TO (20);
SELECT automation.sweep() IS NOT NULL AS swept;
SELECT item, status, detail FROM automation.status() WHERE item LIKE 'table public.regress_dp%' OR item = 'kind regress_dp';
ALTER TABLE regress_dp DETACH PARTITION regress_dp_1;
ALTER TABLE regress_dp_2 DETACH PARTITION regress_dp_2_1;
SELECT item, status, detail FROM automation.status() WHERE item LIKE 'table public.regress_dp%';
-- housekeeping does not forget them; attached again, watched or dropped, they are as they should be
SELECT automation.sweep() IS NOT NULL AS swept;
ALTER TABLE regress_dp_2 ATTACH PARTITION regress_dp_2_1 FOR VALUES FROM (10) TO (20);
SELECT item, status FROM automation.status() WHERE item LIKE 'table public.regress_dp%';
SELECT automation.watch_table('regress_dp_1');
SELECT item, status FROM automation.status() WHERE item LIKE 'table public.regress_dp%';
-- a role without a right on the table is not told its name
SELECT automation.unwatch_table('regress_dp_1');
ALTER TABLE regress_dp_2 DETACH PARTITION regress_dp_2_1;
CREATE ROLE regress_dp_viewer LOGIN;
SELECT automation.grant_usage('regress_dp_viewer', 'viewer');
SET ROLE regress_dp_viewer;
SELECT count(*) FROM automation.status() WHERE item LIKE 'table %';
RESET ROLE;
SELECT automation.unwatch_table('regress_dp');
SELECT count(*) FROM automation.status() WHERE item LIKE 'table public.regress_dp%';
DROP TABLE regress_dp, regress_dp_1, regress_dp_2_1;
SELECT automation.revoke_usage('regress_dp_viewer');
DROP ROLE regress_dp_viewer;
