/*-------------------------------------------------------------------------
 *
 * relay_pace.c
 *		How many rows of a pipelined lane may be on the wire.
 *
 * Alone, a lane gets most of the window: that is what makes it fast.  But the
 * broker works off a connection in the order of its bytes, so whatever another
 * lane sends waits behind all of it: a thousand messages ahead, at a broker that
 * takes five thousand a second, are 200 ms for a message that is all its
 * exchange had to send.  While there are such light lanes, a heavy one gets no
 * more than keeps the broker busy: the rows that are confirmed, at the rate seen,
 * in twice the time that a confirm takes when few rows are on the wire.  The pipe
 * stays full, the queue in front of it short.  With once that time the window could
 * only shrink: the rate seen is never more than the window allows.
 *
 * That time is an average and is measured for each lane: a classic queue writes
 * to disk by the clock, so that the quickest confirm, or one of another queue,
 * says nothing about the next.
 *
 * May depend on: relay_internal.h.
 *
 *-------------------------------------------------------------------------
 */
#include "relay_internal.h"

#include "guc.h"

/* On the wire while the round trip is measured, and at least. */
#define PACED_WINDOW_MIN 8
#define ROUND_TRIPS      64
/* Measured again after this time: it may have become longer, or shorter. */
#define ROUND_TRIP_VALID_US INT64CONST(15000000)
/* A shorter one is not worth the pauses that a smaller window would bring. */
#define ROUND_TRIP_MIN_US INT64CONST(500)
/* With so few rows on the wire a lane is a light one; it counts for so long. */
#define LIGHT_LANE_ROWS 8
#define LIGHT_LANE_US   INT64CONST(10000000)
/* The rate is measured over at least so long; the highest counts, and less and less. */
#define RATE_INTERVAL_US INT64CONST(20000)
#define RATE_FADES       0.9

/* It is no light lane to itself, whatever it sent before. */
static bool
has_light_lanes(const Relay *relay, const Lane *lane)
{
	for (int i = 0; i < (int) lengthof(relay->light_lanes); i++)
	{
		const LightLane *light = &relay->light_lanes[i];

		if (light->at != 0 && relay->now - light->at < LIGHT_LANE_US &&
		    memcmp(&light->key, &lane->key, sizeof(LaneKey)) != 0)
			return true;
	}
	return false;
}

/* Two of them are enough to know one that is another lane's. */
static void
note_light_lane(Relay *relay, const Lane *lane)
{
	LightLane *light = relay->light_lanes;

	if (memcmp(&light[0].key, &lane->key, sizeof(LaneKey)) != 0)
	{
		light[1] = light[0];
		light[0].key = lane->key;
	}
	light[0].at = relay->now;
}

static void
measure_again(Relay *relay, Lane *lane)
{
	lane->round_trip = 0;
	lane->ntrips = 0;
	lane->trips_us = 0;
	lane->trips_from = relay->now;
}

void
relay_pace_sent(Relay *relay, Lane *lane)
{
	if (lane->nwaiting == 0 && lane->on_wire <= LIGHT_LANE_ROWS)
		note_light_lane(relay, lane);
	/* A lane that was idle meanwhile would seem slow. */
	if (lane->on_wire == 1)
	{
		lane->rate_from = relay->now;
		lane->nrated = 0;
	}
}

static void
note_rate(Relay *relay, Lane *lane)
{
	int64 took = relay->now - lane->rate_from;

	lane->nrated++;
	if (took < RATE_INTERVAL_US)
		return;
	lane->rate = Max(lane->rate * RATE_FADES, (double) lane->nrated / took);
	lane->nrated = 0;
	lane->rate_from = relay->now;
}

void
relay_pace_confirmed(Relay *relay, Lane *lane, TimestampTz sent_at)
{
	note_rate(relay, lane);
	if (!has_light_lanes(relay, lane) || (lane->round_trip != 0 && relay->now - lane->trips_from > ROUND_TRIP_VALID_US))
		measure_again(relay, lane);
	else if (lane->round_trip == 0 && sent_at >= lane->trips_from)
	{
		lane->trips_us += relay->now - sent_at;
		if (++lane->ntrips >= ROUND_TRIPS)
			lane->round_trip = Max(lane->trips_us / lane->ntrips, ROUND_TRIP_MIN_US);
	}
}

int
relay_lane_window(const Relay *relay, const Lane *lane)
{
	int most = Max(1, acemq_max_in_flight - Max(1, acemq_max_in_flight / 8));
	double paced;

	if (lane->kind == LANE_ORDERING_KEY || lane->suspect || lane->slow)
		return 1;
	if (!has_light_lanes(relay, lane))
		return most;
	paced = lane->rate * 2 * lane->round_trip;
	return (int) Min((double) most, Max((double) PACED_WINDOW_MIN, paced));
}
