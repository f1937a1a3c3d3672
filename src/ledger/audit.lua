#!lua flags=allow-oom
-- audit: compare a stream that seems to be read to its end with the checkpoint.
--
-- KEYS[1] usage stream   KEYS[2] checkpoint hash   ARGV[1] checkpoint that the reader stands at
-- ARGV[2] our consumer group
-- ARGV[3] how many read entries are counted at most where unread ones lie behind them
--
-- Returns {'even'}              nothing is unread, or nothing was ever read: remembers how far that is true
--         {'unread'}            entries lie after the checkpoint: remembers how many were ever added
--         {'stale', stored}     the checkpoint is another one: nothing written
--         {'gap', entries}      so many entries were removed by others before they were read, one by one or with the
--                               whole stream: counted as read
--         {'returned', entries} so many entries lie at or before the checkpoint that were not there before, so they
--                               were never read
--         {'rewound', entries}  the stream counts fewer entries than were read (deleted and made again, or a failover):
--                               set to its count
--         {'recreated', last}   the stream's newest id lies below the checkpoint, or entries do whose follower at the
--                               checkpoint has gone without a trace: starts over from its beginning, and remembers up
--                               to where ids of events are stored
--
--         an error              a key of another type, a command that the user may not run, or a partition that was
--                               moved away: nothing written
--
-- Safe to run twice: the second call finds entries_read even.

for at, wanted in ipairs({'stream', 'hash'}) do
  local failed = wrong_type(at, wanted)
  if failed then return failed end
end
local refusal = denied(KEYS[2], 'HSET')
if refusal then return refusal end
local stored = redis.call('HMGET', KEYS[2], 'id', 'entries_read', 'entries_added', 'entries_gone', 'audited', 'moved_to', 'migration')
local moved = moved_away(stored[6], stored[7])
if moved then return moved end
if (stored[1] or '0-0') ~= ARGV[1] then return {'stale', stored[1] or '0-0'} end
local of = redis.call('EXISTS', KEYS[1]) == 1 and stream_info(KEYS[1]) or {['entries-added'] = 0}
-- What was removed before anything was ever read is no loss, and what is removed from now on is one.
if not stored[1] then
  local gone = whole(of['entries-added'] - (of['length'] or 0))
  if not stored[2] then redis.call('HSET', KEYS[2], 'entries_read', gone, 'entries_gone', gone, 'audited', '0-0') end
  return {'even'}
end
local read, known = tonumber(stored[2] or '0'), tonumber(stored[3] or '0')
-- A stream that counts fewer than were added to it once is another one, or it is gone: what was unread is lost. Said
-- once.
if of['entries-added'] < known then
  redis.call('HSET', KEYS[2], 'entries_added', whole(of['entries-added']))
  if known > read then return {'gap', known - read} end
end
if not of['length'] then return {'even'} end

-- At most so many of the read entries are there still: the others were trimmed, or had gone when that was looked at
-- last.
local known_left = stored[4] and read - tonumber(stored[4])

-- How many are there. A few at a time, because entries may be large.
local function read_entries(most)
  local counted, from = 0, '-'
  while counted <= most do
    local some = redis.call('XRANGE', KEYS[1], from, stored[1], 'COUNT', 10)
    counted = counted + #some
    if #some < 10 then break end
    from = '(' .. some[10][1]
  end
  return counted
end

local function read_is(id, n, gone)
  local words = whole(n)
  redis.call('HSET', KEYS[2], 'id', id, 'entries_read', words, 'entries_gone', whole(gone), 'audited', id)
  redis.pcall('XGROUP', 'SETID', KEYS[1], ARGV[2], id, 'ENTRIESREAD', words)
end

if made_again(KEYS[1], stored[1]) then
  local gone = of['entries-added'] - of['length']
  local counted = redis.call('HGET', KEYS[2], 'counted_before')
  if not counted or is_before(counted, stored[1]) then redis.call('HSET', KEYS[2], 'counted_before', stored[1]) end
  read_is('0-0', gone, gone)
  return {'recreated', of['last-generated-id']}
end
if of['entries-added'] > known then redis.call('HSET', KEYS[2], 'entries_added', whole(of['entries-added'])) end
-- Nothing lies behind the newest id; behind the largest one that there is, Redis refuses to look.
if of['last-generated-id'] ~= stored[1] and #redis.call('XRANGE', KEYS[1], '(' .. stored[1], '+', 'COUNT', 1) > 0 then
  local most = tonumber(ARGV[3])
  if not known_left or known_left >= most or of['length'] <= known_left then return {'unread'} end
  local left = read_entries(most)
  if left <= known_left then return {'unread'} end
  redis.call('HSET', KEYS[2], 'entries_gone', whole(read - left))
  return {'returned', left - known_left}
end

local missing = of['entries-added'] - read
if missing ~= 0 or not known_left or known_left ~= of['length'] or stored[5] ~= stored[1] then
  read_is(stored[1], of['entries-added'], of['entries-added'] - of['length'])
end
if known_left and of['length'] > known_left then return {'returned', of['length'] - known_left} end
if missing == 0 then return {'even'} end
-- XSETID sets the count as it likes, and leaves no other trace. Whoever removes entries behind the last one of the
-- audit before leaves one: XDEL the newest id that it removed, and trimming goes from the oldest on, so it has taken
-- read entries along.
local removed = stored[5] and (is_before(stored[5], of['max-deleted-entry-id']) or of['length'] < known_left)
-- Where the newest id is not one that was read, that is known only while read entries are left: from an empty stream
-- trimming takes unread ones alone.
local leaves_a_trace = of['last-generated-id'] == stored[1] or stored[5] and known_left and known_left > 0
if missing > 0 and leaves_a_trace and not removed then return {'even'} end
if missing > 0 then return {'gap', missing} end
return {'rewound', -missing}
