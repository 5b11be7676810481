-- attack: use the engine without having been granted anything
-- attacker: app, a role that may log in and has no right in the engine's schemas
-- must not happen: one function or view of the engine can be called or read
\i :attack_lib
\c attack app
SELECT attack.refused('SELECT automation.status()', '42501');
SELECT attack.refused('SELECT automation.emit(''a.b'')', '42501');
SELECT attack.refused('SELECT * FROM automation.runs', '42501');
SELECT attack.refused('SELECT * FROM automation_internal.secret', '42501');
SELECT attack.refused('SELECT automation.grant_usage(''app'', ''admin'')', '42501');
\c attack postgres
SELECT attack.held(NOT has_schema_privilege('app', s, 'USAGE'), format('app may not use schema %I', s))
  FROM unnest('{automation,automation_internal}'::text[]) AS s;
SELECT attack.held(count(*) = 0, 'PUBLIC may execute no function of the engine but the trigger function')
  FROM pg_proc AS p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS acl
 WHERE p.pronamespace IN ('automation'::regnamespace, 'automation_internal'::regnamespace)
   AND acl.grantee = 0
   AND p.proname <> 'capture_change';
SELECT attack.held(count(*) = 0, 'PUBLIC has no right on a relation of the engine')
  FROM pg_class AS c, aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) AS acl
 WHERE c.relnamespace IN ('automation'::regnamespace, 'automation_internal'::regnamespace)
   AND acl.grantee = 0;
SELECT attack.held(count(*) = 0, 'no function of the engine is SECURITY DEFINER')
  FROM pg_proc WHERE pronamespace IN ('automation'::regnamespace, 'automation_internal'::regnamespace) AND prosecdef;
SELECT attack.held(count(*) = 0, 'no role but the owner may write a table of the engine')
  FROM pg_class AS c, aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) AS acl
 WHERE c.relnamespace IN ('automation'::regnamespace, 'automation_internal'::regnamespace)
   AND acl.grantee <> c.relowner
   AND acl.privilege_type <> 'SELECT';
