-- charge.lua for the most common charge only: a single, enforced charge, whose cost is not zero, on
-- a fixed window that begins with its first charge.
--
-- KEYS[1]: the counter. ARGV[1] and the reply are those of charge.lua.
local call, pack, unpack = redis.call, struct.pack, struct.unpack
local now, cost, limit, span = unpack('<dxxxI4I4d', ARGV[1])
local is_given = now ~= 0
if not is_given then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

local used, reset = 0, 0
-- A value of another type is not a state: pcall ignores the error, and SET replaces the value.
local value = redis.pcall('GET', KEYS[1])
if value and #value == 12 then
  used, reset = unpack('<I4d', value)
end
-- An end that is further ahead than the tolerated skew means that the clock went back.
local is_healed = reset > now + span + 5000000 + math.min(span, 120000000)
local is_new = now >= reset
if is_new then
  used = 0
end
local fits = used + cost <= limit
if fits then
  used = used + cost
end
if is_healed or is_new then
  reset = now + span
elseif fits and not is_given then
  -- The window keeps its end and the key keeps its time to live, which follow the same clock.
  call('SETRANGE', KEYS[1], '0', pack('<I4', used))
  return pack('<dBdd', now, 1, used, reset)
end
if fits or is_healed then
  local ttl = math.ceil((reset - now) / 1000) + 1000
  call('SET', KEYS[1], pack('<I4d', used, reset), 'PX', string.format('%.0f', ttl))
end
return pack('<dBdd', now, fits and 1 or 0, used, reset)
