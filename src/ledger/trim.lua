#!lua flags=allow-oom
-- trim: the part of a commit's work that may be delayed: move the group that shows our progress, and trim counted
-- entries from the stream.
--
-- KEYS[1] usage stream   KEYS[2] checkpoint hash   KEYS[3 ..] lists of event ids of past windows
--
-- ARGV[1] consumer group that shows our progress   ARGV[2] 'consumed' or 'never': which entries to trim
--
-- Returns {what, text, ...}  'held' and the group that prevents trimming; 'group', 'trim', 'unlink' and
--                            the error of a command that the user may not run
--         an error           a key of another type, or no right to write the checkpoint: nothing written
--
-- Also runs when memory is full, because it frees memory. Safe to run twice: everything follows from the stored
-- checkpoint.

for at, kind in ipairs({'stream', 'hash'}) do
  local error = wrong_type(at, kind)
  if error then return error end
end
local stored = redis.call('HMGET', KEYS[2], 'id', 'entries_read', 'entries_added', 'entries_gone')
local checkpoint, entries_read = stored[1], stored[2]
if not checkpoint or not entries_read or redis.call('EXISTS', KEYS[1]) == 0 then return {} end
-- Nothing of another stream under the same name is counted, so nothing may be trimmed.
if made_again(KEYS[1], checkpoint) then return {} end
local refusal = denied(KEYS[2], 'HSET')
if refusal then return refusal end

local notes = {}
local function note(what, reply)
  if type(reply) == 'table' and reply.err then
    notes[#notes + 1] = what
    notes[#notes + 1] = reply.err
  end
end

-- Number of entries ever added: if the stream is deleted, it tells how many were never read.
local added = whole(stream_info(KEYS[1])['entries-added'])
if added ~= stored[3] then
  redis.call('HSET', KEYS[2], 'entries_added', added)
end

local moved = redis.pcall('XGROUP', 'SETID', KEYS[1], ARGV[1], checkpoint, 'ENTRIESREAD', entries_read)
if type(moved) == 'table' and moved.err and string.find(moved.err, 'NOGROUP', 1, true) then
  moved = redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], checkpoint, 'ENTRIESREAD', entries_read)
end
note('group', moved)

if ARGV[2] == 'consumed' then
  -- Entries that another group has not received or not acknowledged stay.
  local keep, holder = checkpoint, nil
  local groups = redis.pcall('XINFO', 'GROUPS', KEYS[1])
  note('trim', groups)
  for _, info in ipairs(groups.err and {} or groups) do
    local of = pairs_of(info)
    if of['name'] ~= ARGV[1] then
      local needs = of['last-delivered-id']
      local pending = of['pending'] > 0 and redis.pcall('XPENDING', KEYS[1], of['name']) or {}
      note('trim', pending)
      if pending.err then needs = '0-0' elseif pending[2] and is_before(pending[2], needs) then needs = pending[2] end
      if is_before(needs, keep) then keep, holder = needs, of['name'] end
    end
  end
  if holder then
    notes[#notes + 1] = 'held'
    notes[#notes + 1] = holder
  end
  local trimmed = groups.err and 0 or redis.pcall('XTRIM', KEYS[1], 'MINID', '~', keep, 'LIMIT', '0')
  note('trim', trimmed)
  -- Number of trimmed read entries; audit.lua compares the remaining number.
  if stored[4] and type(trimmed) == 'number' and trimmed > 0 then
    redis.call('HSET', KEYS[2], 'entries_gone', whole(stored[4] + trimmed))
  end
end
for key = 3, #KEYS do note('unlink', redis.pcall('UNLINK', KEYS[key])) end
return notes
