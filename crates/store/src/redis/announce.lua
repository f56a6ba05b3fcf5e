-- Writes the announcement of a proxy, and returns those of the others.
--
-- KEYS[1]: a hash from the name of a proxy to when its announcement expires, in milliseconds, and its
-- text.
-- ARGV: the proxy's name; its text, empty if the proxy ends; how long the announcement is valid, in
-- milliseconds; how many announcements of others to return at most, 0 for none.
-- Returns how many others there are, and then the name and the text of each.
local call = redis.call
local time = call('TIME')
local now, good_for, most = time[1] * 1000 + math.floor(time[2] / 1000), ARGV[3], tonumber(ARGV[4])
if ARGV[2] == '' then
  call('HDEL', KEYS[1], ARGV[1])
  return { 0 }
end
call('HSET', KEYS[1], ARGV[1], string.format('%.0f %s', now + good_for, ARGV[2]))
call('PEXPIRE', KEYS[1], good_for)
-- Without a query for others, expired announcements are removed only when there are many.
if most == 0 and call('HLEN', KEYS[1]) < 100 then
  return { 0 }
end
local others, all = { 0 }, call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local ends, text = string.match(all[i + 1], '^(%d+) (.*)$')
  local left = (tonumber(ends) or 0) - now
  -- One that is valid for too long was written when the clock was wrong.
  if left <= 0 or left > 2 * good_for then
    call('HDEL', KEYS[1], all[i])
  elseif all[i] ~= ARGV[1] then
    others[1] = others[1] + 1
    if others[1] <= most then
      others[#others + 1] = all[i]
      others[#others + 1] = text
    end
  end
end
return others
