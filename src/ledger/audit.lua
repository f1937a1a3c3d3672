#!lua flags=allow-oom
-- audit: compare a stream that seems to be read to its end with the checkpoint.
--
-- KEYS[1] usage stream   KEYS[2] checkpoint hash   ARGV[1] the reader's checkpoint
-- ARGV[2] our consumer group
-- ARGV[3] maximum number of read entries to count if there are unread entries behind them
--
-- Returns {'even'}              nothing is unread, or nothing was ever read: stores the position of this audit
--         {'unread'}            there are unread entries: stores how many entries were ever added
--         {'stale', stored}     the stored checkpoint differs: nothing written
--         {'gap', entries}      others removed this number of entries before they were read, one by one or with the
--                               whole stream: counted as read
--         {'returned', entries} this number of entries appeared at or before the checkpoint; they were never read
--         {'rewound', entries}  the stream's count is lower than the number of entries read (the stream was recreated,
--                               or a failover happened): set to the stream's count
--         {'recreated', last}   the stream's newest id is below the checkpoint, or the checkpoint's entry is missing
--                               without a trace although earlier entries exist: restarts at the stream's beginning,
--                               and stores up to which entry ids of events are known
--
--         an error              a key of another type, a command that the user may not run, or a partition that was
--                               moved to another deployment: nothing written
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
-- Entries removed before the first read are no loss; entries removed from now on are.
if not stored[1] then
  local gone = whole(of['entries-added'] - (of['length'] or 0))
  if not stored[2] then redis.call('HSET', KEYS[2], 'entries_read', gone, 'entries_gone', gone, 'audited', '0-0') end
  return {'even'}
end
local read, known = tonumber(stored[2] or '0'), tonumber(stored[3] or '0')
-- If the stream's count is lower than the remembered one, the stream was replaced or deleted: its unread entries are
-- lost. Reported once.
if of['entries-added'] < known then
  redis.call('HSET', KEYS[2], 'entries_added', whole(of['entries-added']))
  if known > read then return {'gap', known - read} end
end
if not of['length'] then return {'even'} end

-- Upper bound of the read entries that still exist: the others were trimmed, or were missing at the last audit.
local known_left = stored[4] and read - tonumber(stored[4])

-- The number of read entries that exist. Reads a few at a time, because entries may be large.
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
-- Nothing is behind the newest id; for the largest possible id Redis refuses the range.
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
-- XSETID sets the count freely and leaves no other trace. Removing entries behind the last audit's newest entry leaves
-- one: XDEL changes the newest deleted id, and trimming starts at the oldest entry, so it has also removed read
-- entries.
local removed = stored[5] and (is_before(stored[5], of['max-deleted-entry-id']) or of['length'] < known_left)
-- If the newest id was never read, this holds only while read entries are left: trimming a stream without read entries
-- removes only unread ones.
local leaves_a_trace = of['last-generated-id'] == stored[1] or stored[5] and known_left and known_left > 0
if missing > 0 and leaves_a_trace and not removed then return {'even'} end
if missing > 0 then return {'gap', missing} end
return {'rewound', -missing}
