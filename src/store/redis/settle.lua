-- Puts right what was charged: TAKE, the cost is taken whether or not it fits; GIVE_BACK, it is given
-- back; RENEW, its lease is made good for its full time.
--
-- KEYS[1]: the counter. ARGV[1] ends with the two numbers of the charge's receipt.
-- Returns whether anything changed.
local c = charge_on(1)
local algorithm = algorithms[c.kind]
local at, number = unpack('<dd', ARGV[1], 44)
local is_changed = true
algorithm.load(c)
if word == TAKE then
  algorithm.open(c)
  algorithm.take(c)
elseif word == GIVE_BACK then
  is_changed = algorithm.give_back(c, at, number)
else
  -- Only leases can be renewed.
  is_changed = algorithm.renew ~= nil and algorithm.renew(c, at, number)
end
if is_changed then
  algorithm.save(c)
end
return is_changed and 1 or 0
