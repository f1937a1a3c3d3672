-- Inserted before a script by clocked_server.rs: the test controls the time, everything else is the server's.
--
-- The clock, us, is the last of ARGV, which the script itself does not see. A key's expiry is stored beside it, under
-- its name and ':ends', because the server's own expiry would follow the server's clock. As in Redis, a key exists in
-- the millisecond of its expiry and is gone in the next, and a TTL that is not a positive whole number is an error.

local clock_us = tonumber(ARGV[#ARGV])
local KEYS, ARGV = KEYS, {unpack(ARGV, 1, #ARGV - 1)}
local redis = (function(server)
  local clock_ms = math.floor(clock_us / 1000)

  local function text(number) return string.format('%.0f', number) end
  local function end_of(key) return key .. ':ends' end
  local function exists(key) return server.call('EXISTS', key) == 1 end

  local function whole(argument)
    -- The server's conversion of a Lua number to text.
    local digits = type(argument) == 'number' and string.format('%.17g', argument) or argument
    if not string.match(digits, '^%d+$') then error('ERR value is not an integer or out of range: ' .. digits) end
    return tonumber(digits)
  end

  local function ends_at(key, at)
    if not exists(key) then return 0 end
    if at <= clock_ms then
      server.call('DEL', key, end_of(key))
    else
      server.call('SET', end_of(key), text(at))
    end
    return 1
  end

  local commands = {
    TIME = function() return {text(math.floor(clock_us / 1000000)), text(clock_us % 1000000)} end,
    PTTL = function(key)
      if not exists(key) then return -2 end
      local ends = server.call('GET', end_of(key))
      return ends and tonumber(ends) - clock_ms or -1
    end,
    EXPIRE = function(key, s) return ends_at(key, clock_ms + whole(s) * 1000) end,
    PEXPIRE = function(key, ms) return ends_at(key, clock_ms + whole(ms)) end,
    PEXPIREAT = function(key, at) return ends_at(key, whole(at)) end,
    SET = function(key, value, ...)
      local options, rest, at = {...}, {}, nil
      while #options > 0 do
        local option = table.remove(options, 1)
        if option == 'PX' or option == 'PXAT' then
          local ms = whole(table.remove(options, 1))
          if ms == 0 then error("ERR invalid expire time in 'set' command") end
          at = option == 'PXAT' and ms or clock_ms + ms
        else
          rest[#rest + 1] = option
        end
      end
      local done = server.call('SET', key, value, unpack(rest))
      if done then
        server.call('DEL', end_of(key))
        if at then ends_at(key, at) end
      end
      return done
    end,
  }

  for _, key in ipairs(KEYS) do
    local ends = server.call('GET', end_of(key))
    if ends and clock_ms > tonumber(ends) then server.call('DEL', key) end
  end
  local function call(command, ...)
    local key = KEYS[1]
    -- An empty key does not exist, and neither does its expiry.
    if not exists(key) then server.call('DEL', end_of(key)) end
    return (commands[string.upper(command)] or function(...) return server.call(command, ...) end)(...)
  end
  return setmetatable({call = call}, {__index = server})
end)(redis)
