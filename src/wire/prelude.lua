#!lua
-- prelude: what several scripts need. The loader puts it before a script, on one line, so that the script's lines keep their numbers.
--
-- Takes no KEYS[1] and no ARGV of its own: wrong_type looks at those of the script. Returns nothing: the script goes on behind it.
-- Each comment has a line of its own.

-- A number as text: Lua's own conversion writes 1e+15 from there on.
local function whole(n) return string.format('%.0f', n) end

-- The server's clock, ms.
local function now_ms()
  local clock = redis.call('TIME')
  return tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
end

-- The error reply for a key that holds something else.
local function wrong(key, what) return redis.error_reply('WRONGTYPE ' .. key .. ' holds ' .. what) end

-- Whether the server did not even look at the key: it is at another node of the cluster, to which its slot moves, or the user may not.
local function was_refused(reply)
  return type(reply) == 'table' and reply.err and not string.find(reply.err, '^WRONGTYPE')
end

-- The error reply where KEYS[at] is there and of another type, else nil.
local function wrong_type(at, wanted)
  local kind = redis.call('TYPE', KEYS[at]).ok
  if kind ~= 'none' and kind ~= wanted then return wrong(KEYS[at], 'a ' .. kind) end
end

-- The error reply where a field of the totals is no number as HINCRBY takes it, with room to add; else nil.
local function wrong_total(key, field)
  local total = redis.call('HGET', key, field)
  if total and not (total == '0' or #total <= 15 and string.match(total, '^%-?[1-9]%d*$')) then
    return wrong(key, 'no count in field ' .. field)
  end
end
