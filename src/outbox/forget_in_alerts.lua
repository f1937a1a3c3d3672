#!lua flags=allow-oom
-- forget_in_alerts: replace an alert that is not fanned out yet, by a new entry of the outbox.
--
-- KEYS[1] outbox stream
--
-- ARGV[1] id of the entry   ARGV[2] the alert without the erased subjects, JSON
--
-- Returns 'replaced'
--         'gone'     the alert was fanned out or replaced: nothing written
--         an error   a key of another type, or a command that the user may not run: nothing written
--
-- Also runs when memory is full, because the new entry is shorter. Safe to run twice: the second call returns 'gone'.

local failed = wrong_type(1, 'stream') or denied(KEYS[1], 'XDEL', 'XADD')
if failed then return failed end
if redis.call('XDEL', KEYS[1], ARGV[1]) == 0 then return 'gone' end
redis.call('XADD', KEYS[1], '*', 'alert', ARGV[2])
return 'replaced'
