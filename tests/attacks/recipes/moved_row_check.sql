-- Shared by the attacks f01_*: the row has left, its event is that of a deletion, and no cast has run.
SELECT attack.held(NOT rolsuper, 'tabowner is no superuser') FROM pg_roles WHERE rolname = 'tabowner';
SELECT attack.held(count(*) = 1 AND bool_and(prev = '{"k": 1, "x": ["ok"], "id": 1}'), 'the deletion is recorded, without a cast')
  FROM automation.events WHERE kind = 'p' AND op = 'deleted';
