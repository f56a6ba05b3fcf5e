-- Returns the whole state of a counter, so that it can be copied elsewhere.
--
-- KEYS[1]: the counter. Returns the instant and the numbers of the state.
local c = charge_on(1)
local algorithm = algorithms[c.kind]
algorithm.load(c)
algorithm.open(c)
return pack('<d', now) .. algorithm.reply(c)
