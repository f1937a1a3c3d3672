#!lua flags=allow-oom
-- audit: compare a stream that seems to be read to its end with the checkpoint.
--
-- KEYS[1] usage stream   KEYS[2] checkpoint hash   ARGV[1] checkpoint that the reader stands at   ARGV[2] our consumer group
--
-- Returns {'even'}              nothing is unread, or there is nothing to compare: nothing written
--         {'unread'}            entries lie after the checkpoint: nothing written
--         {'stale', stored}     the checkpoint is another one: nothing written
--         {'gap', entries}      so many entries were removed by others before they were read, one by one or with the whole stream:
--                               counted as read
--         {'rewound', entries}  the stream counts fewer entries than were read (deleted and made again, or a failover): set to its count
--         {'recreated', last}   the stream's newest id lies below the checkpoint, or entries do whose follower at the checkpoint has
--                               gone without a trace: starts over from its beginning
--
--         an error              a key of another type, or a command that the user may not run: nothing written
--
-- Safe to run twice: the second call finds entries_read even.

for at, wanted in ipairs({'stream', 'hash'}) do
  local failed = wrong_type(at, wanted)
  if failed then return failed end
end
local refusal = denied(KEYS[2], 'HSET')
if refusal then return refusal end
local stored = redis.call('HMGET', KEYS[2], 'id', 'entries_read', 'entries_added')
if (stored[1] or '0-0') ~= ARGV[1] then return {'stale', stored[1] or '0-0'} end
if not stored[1] then return {'even'} end
local of = redis.call('EXISTS', KEYS[1]) == 1 and stream_info(KEYS[1]) or {['entries-added'] = 0}
local read, known = tonumber(stored[2] or '0'), tonumber(stored[3] or '0')
-- A stream that counts fewer than were added to it once is another one, or it is gone: what was unread is lost. Said once.
if of['entries-added'] < known then
  redis.call('HSET', KEYS[2], 'entries_added', whole(of['entries-added']))
  if known > read then return {'gap', known - read} end
end
if not of['length'] then return {'even'} end

local function read_is(id, n)
  local words = whole(n)
  redis.call('HSET', KEYS[2], 'id', id, 'entries_read', words)
  redis.pcall('XGROUP', 'SETID', KEYS[1], ARGV[2], id, 'ENTRIESREAD', words)
end

if made_again(KEYS[1], stored[1]) then
  read_is('0-0', of['entries-added'] - of['length'])
  return {'recreated', of['last-generated-id']}
end
if #redis.call('XRANGE', KEYS[1], '(' .. stored[1], '+', 'COUNT', 1) > 0 then return {'unread'} end

local missing = of['entries-added'] - read
if missing == 0 then return {'even'} end
read_is(stored[1], of['entries-added'])
-- XSETID sets the count as it likes. Where the newest id is the checkpoint's, nothing behind it can have been lost.
if missing > 0 and of['last-generated-id'] == stored[1] then return {'even'} end
if missing > 0 then return {'gap', missing} end
return {'rewound', -missing}
