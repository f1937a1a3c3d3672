#!lua flags=allow-oom
-- audit: compare a stream that seems to be read to its end with the checkpoint.
--
-- KEYS[1] usage stream   KEYS[2] checkpoint hash   ARGV[1] checkpoint that the reader stands at   ARGV[2] our consumer group
--
-- Returns {'even'}              nothing is unread, or there is nothing to compare: nothing written
--         {'unread'}            entries lie after the checkpoint: nothing written
--         {'stale', stored}     the checkpoint is another one: nothing written
--         {'gap', entries}      so many entries were removed by others before they were read: counted as read
--         {'rewound', entries}  the stream counts fewer entries than were read (deleted and made again, or a failover): set to its count
--         {'recreated', last}   the stream's newest id lies below the checkpoint, or entries do whose follower at the checkpoint has
--                               gone without a trace (commit.lua says why): starts over from its beginning
--
--         an error              a key of another type: nothing written
--
-- Safe to run twice: the second call finds entries_read even.

local function above(a, b)
  local am, as = string.match(a, '^(%d+)-(%d+)$')
  local bm, bs = string.match(b, '^(%d+)-(%d+)$')
  if am == bm then am, bm = as, bs end
  if #am ~= #bm then return #am > #bm end
  return am > bm
end

for i, wanted in ipairs({'stream', 'hash'}) do
  local kind = redis.call('TYPE', KEYS[i]).ok
  if kind ~= 'none' and kind ~= wanted then return redis.error_reply('WRONGTYPE ' .. KEYS[i] .. ' holds a ' .. kind) end
end
local stored = redis.call('HMGET', KEYS[2], 'id', 'entries_read')
if (stored[1] or '0-0') ~= ARGV[1] then return {'stale', stored[1] or '0-0'} end
if not stored[1] or redis.call('EXISTS', KEYS[1]) == 0 then return {'even'} end

local info = redis.call('XINFO', 'STREAM', KEYS[1])
local of = {}
for i = 1, #info, 2 do of[info[i]] = info[i + 1] end

local function read_is(id, n)
  local words = string.format('%.0f', n)
  redis.call('HSET', KEYS[2], 'id', id, 'entries_read', words)
  redis.pcall('XGROUP', 'SETID', KEYS[1], ARGV[2], id, 'ENTRIESREAD', words)
end

local function made_again(checkpoint)
  if above(checkpoint, of['last-generated-id']) then return true end
  return checkpoint ~= '0-0' and #redis.call('XRANGE', KEYS[1], checkpoint, checkpoint) == 0
    and #redis.call('XRANGE', KEYS[1], '-', '(' .. checkpoint, 'COUNT', 1) > 0
    and above(checkpoint, of['max-deleted-entry-id'])
end

if made_again(stored[1]) then
  read_is('0-0', of['entries-added'] - of['length'])
  return {'recreated', of['last-generated-id']}
end
if #redis.call('XRANGE', KEYS[1], '(' .. stored[1], '+', 'COUNT', 1) > 0 then return {'unread'} end

local missing = of['entries-added'] - tonumber(stored[2] or '0')
if missing == 0 then return {'even'} end
read_is(stored[1], of['entries-added'])
if missing > 0 then return {'gap', missing} end
return {'rewound', -missing}
