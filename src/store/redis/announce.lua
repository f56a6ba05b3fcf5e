-- Notes what a proxy says of itself, and tells what others say.
--
-- KEYS[1]: a hash, by proxy: until when its words are good, in milliseconds, and the words.
-- ARGV: its name; its words, none if it goes; how long they are good for, in milliseconds; how many
-- others are told at most: 0, it does not ask.
-- Returns how many others there are, and then the name and the words of each.
local call = redis.call
local time = call('TIME')
local now, good_for, most = time[1] * 1000 + math.floor(time[2] / 1000), ARGV[3], tonumber(ARGV[4])
if ARGV[2] == '' then
  call('HDEL', KEYS[1], ARGV[1])
  return { 0 }
end
call('HSET', KEYS[1], ARGV[1], string.format('%.0f %s', now + good_for, ARGV[2]))
call('PEXPIRE', KEYS[1], good_for)
-- What nobody asks for is cleared away when it is much.
if most == 0 and call('HLEN', KEYS[1]) < 100 then
  return { 0 }
end
local others, all = { 0 }, call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local ends, words = string.match(all[i + 1], '^(%d+) (.*)$')
  local left = (tonumber(ends) or 0) - now
  -- One that is good for too long was written when the clock was wrong.
  if left <= 0 or left > 2 * good_for then
    call('HDEL', KEYS[1], all[i])
  elseif all[i] ~= ARGV[1] then
    others[1] = others[1] + 1
    if others[1] <= most then
      others[#others + 1] = all[i]
      others[#others + 1] = words
    end
  end
end
return others
