/*
 * fuzz_login.c
 *		All that a broker says from the first byte on, the login included.
 */
#include "peer.h"

void
fuzz_one(Input *input)
{
	BrokerError error = {0};
	BrokerConn *conn;
	BrokerEvent event;

	peer_greeting = input_bytes(input, input->left, &peer_greeting_len);
	conn = peer_connect(&error);
	if (conn == NULL)
	{
		MUST(error.text[0] != '\0');
		return;
	}
	(void) strlen(broker_server_text(conn));
	(void) broker_open_channel(conn, BROKER_CHANNEL_MAIN);
	broker_pump(conn);
	while (broker_next_event(conn, &event))
		MUST(event.kind == BROKER_EVENT_LOST || !broker_is_lost(conn) || event.text == NULL || strlen(event.text) > 0);
	broker_disconnect(conn, false);
}
